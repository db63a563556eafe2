"""Files stay short enough to be read in one go."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAX_LINES = 500
MAX_LINES_OF_KERNELS_AND_TESTS = 700
FILES = sorted(
    p
    for top in ("engine", "app", "packaging", "tests")
    for pattern in ("*.py", "*.cl")
    for p in (ROOT / top).rglob(pattern)
)


def limit(path: Path) -> int:
    parts = path.relative_to(ROOT).parts
    long = parts[0] == "tests" or "kernels" in parts or path.suffix == ".cl"
    return MAX_LINES_OF_KERNELS_AND_TESTS if long else MAX_LINES


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_a_file_can_be_read_in_one_go(path):
    lines = path.read_text(encoding="utf-8").splitlines()

    assert len(lines) <= limit(path)
