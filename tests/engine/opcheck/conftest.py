"""What the op checks are tried on: real devices, and plug-ins with faults, made of the template."""

from pathlib import Path

import pytest

from engine import paths
from engine.core.graph import GraphBuilder
from engine.opcheck.cases import CountedCase
from engine.opcheck.check import check_ops

TEMPLATE = paths.resources_dir() / "templates" / "splitscope_backend_slow.py"


@pytest.fixture
def changed_template(tmp_path):
    """Write the template with some text replaced; every piece has to be there once."""

    def write(*changes: tuple[str, str]) -> Path:
        text = TEMPLATE.read_text()
        for old, new in changes:
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        path: Path = tmp_path / "splitscope_backend_changed.py"
        path.write_text(text)
        return path

    return write


@pytest.fixture
def check():
    """Check cases on one subject; the verdicts, in the order of the cases."""

    def checked(subject, *cases, with_speed=False):
        matrix = check_ops(
            [subject],
            [CountedCase(case) for case in cases],
            with_speed=with_speed,
            on_progress=lambda _: None,
            stop_asked=lambda: False,
        )
        return matrix.verdicts(subject.name)

    return checked


@pytest.fixture
def graph_of():
    """The graph that ends in these tensors."""

    def built(*results):
        builder = GraphBuilder()
        for result in results:
            builder.expand(result)
        return builder.build()

    return built
