"""The devices of this computer: backends by choice, and those that are loaded."""

import importlib

import pytest

from engine import backends, paths
from engine.core.load_report import Linkage
from engine.core.options import Options
from engine.errors import DeviceError, PlacementError
from engine.machine import Machine
from engine.session import Session
from tests.engine.nano import nano
from tests.engine.plugins import write_plugin


def names(machine: Machine) -> list[str]:
    return [facts.name for facts in machine.facts()]


# --- built-in backends ------------------------------------------------------------------------


def test_only_chosen_backends_are_registered_and_the_others_say_why_not():
    machine = Machine(backends="cpu,blas")

    absent = {item.name: item for item in machine.unavailable()}
    assert names(machine) == ["BLAS", "CPU"]
    assert absent["OpenCL"].reason == "it is off: --backends is cpu,blas"
    assert absent["OpenCL"].hidden


def test_the_environment_chooses_too(monkeypatch):
    monkeypatch.setenv("SPLITSCOPE_BACKENDS", "cpu,nonsense")

    machine = Machine()

    assert names(machine) == ["CPU"]
    assert "nonsense" in [item.name for item in machine.unavailable()]


def test_the_settings_file_chooses_too():
    paths.settings_file().parent.mkdir(parents=True)
    paths.settings_file().write_text("[General]\nbackends=blas\n")

    assert names(Machine()) == ["BLAS"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ModuleNotFoundError(name="numba"), "numba is missing"),
        (DeviceError("The driver is too old.", "It has 1.0."), "The driver is too old. It has 1.0"),
        (RuntimeError("boom"), "its own check came to an end with RuntimeError('boom')"),
    ],
)
def test_a_backend_that_fails_its_own_check_is_a_state_with_a_reason(monkeypatch, error, reason):
    def create():
        raise error

    module = importlib.import_module("engine.backends.blas.reg")
    monkeypatch.setattr(module, backends.MAKER, create)

    machine = Machine(backends="blas,cpu")

    absent = {item.name: item.reason for item in machine.unavailable()}
    assert names(machine) == ["CPU"]
    assert absent["BLAS"] == reason


def test_without_a_cpu_planning_is_refused_in_words():
    session = Session(backends="blas")
    session.open(nano())

    with pytest.raises(PlacementError) as caught:
        session.plan(Options())

    assert caught.value.title == "There is no CPU device."
    assert "--backends" in caught.value.hint
    session.close()


def test_a_built_in_backend_says_how_it_got_here():
    (cpu,) = Machine(backends="cpu").summaries()

    assert cpu.origin is not None
    assert (cpu.origin.backend, cpu.origin.linkage) == ("cpu", Linkage.STATIC)
    assert (cpu.origin.option, cpu.origin.default) == ("--backends cpu", "on")
    assert (cpu.origin.decided_by, cpu.origin.place) == ("--backends", "engine.backends.cpu.reg")
    assert (cpu.reg, cpu.reg_index) == ("CPU", 0)


def test_a_device_is_summed_up_with_all_that_is_known_of_it():
    (cpu,) = Machine(backends="cpu").summaries()

    assert [(b.name, b.use, b.is_host) for b in cpu.bufts] == [
        ("CPU", "default", True),
        ("CPU_REPACK", "extra", False),
    ]
    assert cpu.caps.buffer_from_host_ptr
    assert cpu.memory_source
    assert dict(cpu.features).get("SSE3", "1") == "1"


# --- loaded ones ------------------------------------------------------------------------------


def test_the_folder_of_plug_ins_is_searched_at_the_start():
    path = write_plugin(paths.backends_dir(), "x", device="Card")

    machine = Machine(backends="cpu")

    card = machine.summaries()[0]
    assert names(machine) == ["Card", "CPU"]
    assert card.origin is not None
    assert (card.origin.linkage, card.origin.place) == (Linkage.DYNAMIC, str(path))
    assert [a.outcome.value for a in card.origin.attempts] == ["registered"]
    assert card.features == (("SLOW", "1"),)


def test_a_path_that_is_named_replaces_the_folders_yet_not_the_variable(tmp_path, monkeypatch):
    write_plugin(paths.backends_dir(), "usual")
    named = write_plugin(tmp_path, "named")
    extra = write_plugin(tmp_path, "extra")
    monkeypatch.setenv("GGML_BACKEND_PATH", str(extra))

    machine = Machine(backends="cpu", load=[named])

    assert names(machine) == ["NAMED", "EXTRA", "CPU"]


def test_several_paths_may_be_named(tmp_path):
    files = [write_plugin(tmp_path, name) for name in ("b", "a")]

    assert names(Machine(backends="none", load=files)) == ["B", "A"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("bad.py", "bad.py: it cannot be opened: it raised ZeroDivisionError"),
        ("gone.py", "There is no such file or folder."),
        ("empty", "No file there is called as a backend library is."),
    ],
)
def test_a_path_that_gave_nothing_is_an_error_for_who_wants_to_use_it(tmp_path, name, sentence):
    (tmp_path / "bad.py").write_text("1 / 0")
    (tmp_path / "empty").mkdir()
    machine = Machine(backends="cpu", load=[tmp_path / name])

    with pytest.raises(DeviceError) as caught:
        machine.check_loaded()

    assert caught.value.title == "No backend was loaded."
    assert caught.value.sentence.startswith(sentence)
    assert names(machine) == ["CPU"]


def test_a_path_that_cannot_be_looked_at_is_an_error_in_words(tmp_path):
    machine = Machine(backends="cpu", load=[tmp_path / ("x" * 300)])

    with pytest.raises(DeviceError) as caught:
        machine.check_loaded()

    assert caught.value.sentence.endswith("xxx: File name too long.")


def test_a_reason_that_is_a_sentence_gets_no_second_full_stop(tmp_path):
    machine = Machine(backends="cpu", load=[write_plugin(tmp_path, "x", device="CPU")])

    with pytest.raises(DeviceError) as caught:
        machine.check_loaded()

    assert "A second device would be called CPU" in caught.value.sentence
    assert caught.value.sentence.endswith(".")
    assert not caught.value.sentence.endswith("..")


def test_devices_on_paper_go_with_neither(tmp_path):
    for given in ({"load": [tmp_path]}, {"rpc": ["a:1"]}, {"backends": "cpu"}):
        with pytest.raises(PlacementError, match="--virtual goes with none of"):
            Machine(["A:gpu:1"], **given)


def test_servers_without_a_library_for_them_are_an_error_and_a_line_of_what_is_left_out():
    machine = Machine(backends="cpu", rpc=["far:50052"])

    with pytest.raises(DeviceError, match="talks to RPC servers") as caught:
        machine.check_loaded()

    assert "--load" in caught.value.hint
    assert names(machine) == ["CPU"]
    assert "RPC[far:50052]" in [item.name for item in machine.unavailable()]


# --- loading while a model is open ------------------------------------------------------------


def test_an_open_model_is_planned_for_a_backend_that_came_and_not_for_one_that_went(tmp_path):
    session = Session(backends="cpu")
    session.open(nano())
    before = session.plan(Options())

    session.load_backend(write_plugin(tmp_path, "x", device="Card"))
    with_card = session.plan(Options())
    session.unload_backend(session.find_backend("card"))
    after = session.plan(Options())

    seen = [[d.name for d in plans.prompt.devices] for plans in (before, with_card, after)]
    assert seen == [["CPU"], ["Card", "CPU"], ["CPU"]]
    session.close()
