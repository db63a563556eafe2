"""The demo without a screen: what it refuses before it begins. tests/e2e has the whole of it."""

import pytest

from app.headless import PICTURE_NAME, TRACE_NAME, main


@pytest.mark.parametrize("name", [TRACE_NAME, PICTURE_NAME])
def test_what_cannot_be_written_is_said_before_the_demo_begins(tmp_path, capsys, name):
    (tmp_path / name).mkdir()

    assert main(["--out", str(tmp_path)]) == 1
    said = f"Cannot write {name}. There is a folder of that name: {tmp_path / name}. "
    assert capsys.readouterr().err.startswith(said)
