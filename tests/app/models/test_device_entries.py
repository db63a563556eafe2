from dataclasses import replace

import pytest

from app.models.device_entries import Presence, device_entries, entry_of, presence_words
from app.models.device_words import card_facts, source_words
from app.state.app_state import AppState, LoadedFiles
from engine.core.load_report import LoadReport
from tests.app.models import device_facts, paper_run
from tests.app.models.device_facts import DEVICES, REPORT, SLOW_PATH, UNAVAILABLE

GONE = "/plugins/splitscope_backend_gone.py"
CUDA = "/plugins/libggml-cuda.so"


@pytest.fixture
def state(qapp):
    state = AppState()
    state.set_devices(DEVICES, UNAVAILABLE, REPORT)
    return state


def presences(state):
    return {entry.key: entry.presence for entry in device_entries(state)}


def words_of(state, key):
    facts = card_facts(entry_of(state, key))
    return paper_run.words("\n".join(f"{t}: {w}" for t, w in (*facts.facts, *facts.got_here)))


def test_without_a_plan_devices_are_here_and_no_more_is_said(state):
    assert presences(state) == {
        "OpenCL0": Presence.REGISTERED, "BLAS": Presence.REGISTERED, "Slow": Presence.REGISTERED,
        "CPU": Presence.REGISTERED, "vulkan": Presence.ABSENT, "OpenCL1": Presence.HIDDEN,
    }  # fmt: skip


def test_a_plan_says_which_backend_a_device_is_and_why_another_is_left_out(state):
    state.set_plans(paper_run.plans())

    entries = {entry.key: entry for entry in device_entries(state)}
    assert presence_words(entries["OpenCL0"]) == "backend 0"
    assert presence_words(entries["CPU"]) == "backend 1"
    assert presence_words(entries["BLAS"]) == "left out"
    assert "see --blas" in entries["BLAS"].hint
    assert "chosen, backend 0" in words_of(state, "OpenCL0")


def test_a_device_that_is_left_out_by_name_says_by_which(state):
    plans = paper_run.plans()
    state.set_plans(replace(plans, options=replace(plans.options, devices=("OpenCL0",))))

    assert entry_of(state, "Slow").why == "the option -dev names others: OpenCL0"


def test_the_card_says_everything_that_is_known_of_a_device(state):
    words = words_of(state, "OpenCL0")

    assert "Memory: 12.0 GiB free of 12.0 GiB: what the driver says" in words
    assert "Buffer type: OpenCL0: its own, aligned to 128 B, at most 8.0 GiB at once" in words
    assert "Can: events, mapped files" in words
    assert "Cannot: computes asynchronously, pinned host memory" in words
    assert "Option: --backends opencl0; on this system the default is on" in words
    assert "Module: engine.backends.opencl0.reg" in words


def test_the_card_of_a_loaded_device_says_from_where_and_what_was_tried(state):
    words = words_of(state, "Slow")

    assert f"From: {SLOW_PATH}" in words
    assert "Features: AVX2, LANES = 8" in words
    assert "Symbol: backend_init, API version 2, score 1" in words
    assert "Tried: splitscope_backend_slow.py: registered, score 1" in words
    assert source_words(entry_of(state, "Slow")) == "splitscope_backend_slow.py"


def test_of_many_paths_the_best_are_named_and_the_rest_is_counted(state):
    more = tuple(
        device_facts.attempt(f"libggml-cpu-v{i}", REPORT.attempts[1].outcome, score=i)
        for i in range(9)
    )
    device = device_facts.device("X", DEVICES[0].type, place="/plugins/libggml-cpu-v8.so")
    device = device_facts.replace(device, attempts=more)
    state.set_devices((device,), (), REPORT)

    words = words_of(state, "X")

    assert "Tried: libggml-cpu-v8.so: not chosen, score 8\n: libggml-cpu-v7.so" in words
    assert "5 more files: see the load report" in words


def test_what_is_left_out_says_why_and_what_to_do(state):
    assert words_of(state, "vulkan") == (
        "Why: No driver was found.\nWhat to do: Install a Vulkan driver."
    )


def test_a_file_of_every_start_that_is_not_in_use_is_listed_with_its_reason(state):
    state.set_loaded(LoadedFiles(at_start=(SLOW_PATH, CUDA, GONE)))

    files = [e for e in device_entries(state) if e.presence is Presence.NOT_LOADED]
    assert [entry.key for entry in files] == [CUDA, GONE]
    assert files[0].why.startswith("libcudart.so.12: cannot open")
    assert files[0].file == CUDA
    assert not files[0].can_be_unloaded


def test_only_what_came_from_a_file_can_be_unloaded(state):
    can = [entry.key for entry in device_entries(state) if entry.can_be_unloaded]

    assert can == ["Slow"]


def test_a_report_of_nothing_leaves_nothing_to_list(qapp):
    state = AppState()
    state.set_devices((), (), LoadReport())

    assert device_entries(state) == ()
