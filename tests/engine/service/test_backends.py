"""Backends that come and go while the engine serves a window."""

from engine import paths
from engine.core.options import Options
from engine.service.messages import (
    BackendsChanged,
    Failed,
    LoadBackend,
    ModelOpened,
    OpenModel,
    Planned,
    Replan,
    RunEnded,
    StartRun,
    UnloadBackend,
)
from tests.engine.nano import nano
from tests.engine.plugins import write_plugin

TEMPLATE = paths.resources_dir() / "templates" / "splitscope_backend_slow.py"
SLOW = Options(devices=("Slow",), n_ctx=256, temperature=0)
CPU = Options(devices=("none",), n_ctx=256, temperature=0)


def names(answer) -> list[str]:
    return [device.name for device in answer.devices]


def test_a_backend_is_loaded_used_and_unloaded_by_request(child):
    child.send(OpenModel(1, nano(), CPU), LoadBackend(2, TEMPLATE))
    child.wait_for(ModelOpened, request_id=1)
    loaded = child.wait_for(BackendsChanged, request_id=2)
    child.send(Replan(3, SLOW), StartRun(4, "Hello", 4, chat=False))
    planned = child.wait_for(Planned, request_id=3)
    ended = child.wait_for(RunEnded, request_id=4)
    child.send(UnloadBackend(5, "slow"), Replan(6, SLOW))
    unloaded = child.wait_for(BackendsChanged, request_id=5)
    refused = child.wait_for(Failed, request_id=6)
    child.send(Replan(7, CPU), StartRun(8, "Hello", 4, chat=False))
    again = child.wait_for(RunEnded, request_id=8)

    assert "Slow" in names(loaded)
    assert [a.outcome.value for a in loaded.report.attempts] == ["registered"]
    assert "Slow" in [device.name for device in planned.plans.prompt.devices]
    assert {"Slow", "CPU"} == {split.backend for split in ended.summary.splits}
    assert "Slow" not in names(unloaded)
    assert [a.outcome.value for a in unloaded.load_report.attempts if a.found] == ["unloaded"]
    assert "no device Slow" in refused.title
    assert again.summary.tokens == ended.summary.tokens


def test_a_backend_that_cannot_be_loaded_leaves_the_engine_as_it_was(child, tmp_path):
    path = write_plugin(tmp_path, "x", before="import os; os.abort()")

    child.send(LoadBackend(1, path), UnloadBackend(2, "x"))
    changed = child.wait_for(BackendsChanged, request_id=1)
    failed = child.wait_for(Failed, request_id=2)

    assert "SIGABRT" in changed.report.attempts[0].reason
    assert names(changed)[-1] == "CPU"
    assert failed.title == "x cannot be unloaded."


def test_what_the_engine_tried_at_its_start_is_in_its_greeting(child):
    report = child.answers[0].load_report

    assert report.attempts
    assert not report.has_loaded
