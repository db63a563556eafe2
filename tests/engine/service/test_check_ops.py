"""Operations checked by request: progress, the matrix, a stop, and a crash that is a row."""

import pytest

from engine import paths
from engine.core.op_matrix import OpState
from engine.core.options import Options
from engine.service.messages import (
    CheckOps,
    Failed,
    JobProgress,
    LoadBackend,
    ModelOpened,
    OpenModel,
    OpsChecked,
    StopRun,
)
from tests.engine.nano import nano

TEMPLATE = paths.resources_dir() / "templates" / "splitscope_backend_slow.py"


def test_the_open_models_operations_are_checked_with_progress(child):
    child.send(OpenModel(1, nano(), Options(n_ctx=256)), CheckOps(2, ("CPU",), speed=True))
    child.wait_for(ModelOpened, request_id=1)
    progress = child.wait_for(JobProgress, request_id=2).progress
    matrix = child.wait_for(OpsChecked, request_id=2).matrix

    assert progress.label.endswith(" on CPU")
    assert progress.total == len(matrix.rows)
    assert matrix.devices == ("CPU",)
    assert {verdict.state for verdict in matrix.verdicts("CPU")} == {OpState.OK}
    assert all(verdict.speed.n_runs for verdict in matrix.verdicts("CPU"))
    assert sum(row.n_token for row in matrix.rows) > 30


def test_a_crash_of_a_loaded_backend_is_a_row_and_the_engine_lives(child, tmp_path):
    text = TEMPLATE.read_text().replace(
        "    p: Any = node.params\n", "    p: Any = node.params\n    __import__('os').abort()\n"
    )
    path = tmp_path / "splitscope_backend_crash.py"
    path.write_text(text)

    child.send(LoadBackend(1, path), CheckOps(2, ("Slow",), of_model=False, op="MUL", type="f32"))
    matrix = child.wait_for(OpsChecked, request_id=2).matrix
    child.send(CheckOps(3, ("CPU",), of_model=False, op="MUL"))
    again = child.wait_for(OpsChecked, request_id=3).matrix

    assert matrix.rows[0].verdicts[0].reason == "it ended the process: SIGABRT"
    assert again.n_faults == 0


def test_a_stop_gives_what_was_found(child):
    child.send(CheckOps(1, ("CPU",), of_model=False, speed=True))
    child.wait_for(JobProgress, request_id=1)
    child.send(StopRun(2))
    matrix = child.wait_for(OpsChecked, request_id=1).matrix

    assert matrix.is_stopped
    assert matrix.rows[-1].verdicts[0].state is OpState.NOT_CHECKED


@pytest.mark.parametrize(
    ("request_", "title"),
    [
        (CheckOps(1, ("GPU9",), of_model=False), "There is no device GPU9."),
        (CheckOps(1), "No model is open."),
        (CheckOps(1, of_model=False, op="NOPE"), "There is no operation NOPE."),
    ],
)
def test_what_cannot_be_checked_is_refused(child, request_, title):
    child.send(request_)

    assert child.wait_for(Failed, request_id=1).title == title
