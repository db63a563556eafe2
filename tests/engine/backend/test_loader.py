"""The loader on real plug-ins in real folders: who wins, who is refused and why."""

import gc
import os
import sys
import threading
from pathlib import Path

import pytest

from engine.backend import apart
from engine.backend.loader import Loader
from engine.backend.registry import Registry
from engine.backend.search_paths import SearchPath
from engine.backends.python_kind import PythonKind
from engine.core.load_report import LoadReport, Outcome, Probe
from engine.errors import DeviceError
from tests.engine.plugins import write_plugin


class OrderedKind(PythonKind):
    """Looks for backends by a list, as the kind of ggml's libraries does."""

    load_order = ("late", "early", "missing")


def loader_of(*folders: Path, kind=None, files=()) -> Loader:
    places = [SearchPath(folder, f"folder {i}") for i, folder in enumerate(folders)]
    return Loader(Registry(), [kind or PythonKind()], places, files)


def ends(report: LoadReport) -> dict[str, str]:
    return {Path(a.path).name: a.outcome.value for a in report.attempts}


def reason(report: LoadReport, name: str) -> str:
    return next(a.reason for a in report.attempts if Path(a.path).name == name)


def device_names(loader: Loader) -> list[str]:
    return [device.facts.name for device in loader.registry.devices()]


# --- which file is taken ----------------------------------------------------------------------


def test_the_variant_of_the_highest_score_wins_over_all_folders(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    write_plugin(first, "x", "low", score=3)
    write_plugin(second, "x", "high", score=9, device="BEST")
    write_plugin(first, "x", score=100)
    loader = loader_of(first, second)

    report = loader.load_best("x")

    assert device_names(loader) == ["BEST"]
    assert ends(report) == {
        "splitscope_backend_x-low.py": "not chosen",
        "splitscope_backend_x-high.py": "registered",
    }
    low = reason(report, "splitscope_backend_x-low.py")
    assert low == "its score is 3, that of splitscope_backend_x-high.py is 9"


def test_of_equal_scores_the_first_met_wins(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    write_plugin(second, "x", "a", score=7)
    write_plugin(first, "x", "b", score=7, device="FIRST")
    write_plugin(first, "x", "c", score=7)
    loader = loader_of(first, second)

    loader.load_best("x")

    assert device_names(loader) == ["FIRST"]


def test_the_base_file_is_taken_only_when_nothing_scored(tmp_path):
    write_plugin(tmp_path, "x", "zero", score=0)
    write_plugin(tmp_path, "x", "silent")
    write_plugin(tmp_path, "x", device="BASE")
    loader = loader_of(tmp_path)

    report = loader.load_best("x")

    assert device_names(loader) == ["BASE"]
    zero, silent = (reason(report, f"splitscope_backend_x-{v}.py") for v in ("zero", "silent"))
    assert zero == "its score is 0: it does not support this computer"
    assert silent == "it has no backend_score, without which a variant is not chosen"


def test_the_first_base_file_that_exists_is_taken_whatever_comes_of_it(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    write_plugin(first, "x", after="raise RuntimeError('no')")
    write_plugin(second, "x")
    loader = loader_of(tmp_path / "nothing", first, second)

    report = loader.load_best("x")

    assert [(a.outcome, a.found) for a in report.attempts] == [
        (Outcome.NOT_FOUND, False),
        (Outcome.REFUSED, True),
    ]
    assert device_names(loader) == []


def test_all_are_loaded_in_the_order_of_their_kind_and_named_files_last(tmp_path):
    folder = tmp_path / "folder"
    write_plugin(folder, "early")
    write_plugin(folder, "late")
    write_plugin(folder, "unlisted")
    extra = write_plugin(tmp_path, "extra")
    loader = loader_of(folder, kind=OrderedKind(), files=[SearchPath(extra, "A_VARIABLE")])

    report = loader.load_all()

    assert device_names(loader) == ["LATE", "EARLY", "EXTRA"]
    assert [(a.backend, a.outcome.value, a.why) for a in report.attempts] == [
        ("late", "registered", "folder 0"),
        ("early", "registered", "folder 0"),
        ("missing", "not found", "folder 0"),
        ("extra", "registered", "A_VARIABLE"),
    ]


def test_without_a_list_all_that_is_found_is_loaded_by_name(tmp_path):
    for name in ("b", "a"):
        write_plugin(tmp_path, name)
    loader = loader_of(tmp_path)

    loader.load_all()

    assert device_names(loader) == ["A", "B"]


def test_a_folder_that_is_named_replaces_those_that_are_searched(tmp_path):
    write_plugin(tmp_path / "usual", "usual")
    write_plugin(tmp_path / "named", "named")
    loader = loader_of(tmp_path / "usual")

    report = loader.load(tmp_path / "named")

    assert device_names(loader) == ["NAMED"]
    assert {a.why for a in report.attempts} == {"it was asked for"}


def test_a_file_is_loaded_whatever_it_is_called(tmp_path):
    path = write_plugin(tmp_path, "x").rename(tmp_path / "mine.py")
    loader = loader_of()

    report = loader.load(path)

    assert device_names(loader) == ["X"]
    assert report.attempts[0].backend == "mine"


# --- faults: each is a row, and nothing else changes ------------------------------------------


FAULTS = {
    "no init": ({"after": "del backend_init"}, "it has no backend_init"),
    "missing dependency": (
        {"before": "import a_package_that_nobody_has"},
        "No module named 'a_package_that_nobody_has'",
    ),
    "older version": (
        {"after": "API_VERSION = 1"},
        "it was made for version 1 of the contract, this is 2",
    ),
    "no version": ({"after": "del API_VERSION"}, "it says no version of the contract"),
    "score 0": ({"score": 0}, "its score is 0: it does not support this computer"),
    "raises when loaded": ({"before": "1 / 0"}, "it raised ZeroDivisionError"),
    "raises when made": (
        {"after": "def backend_init(): raise RuntimeError('no card')"},
        "it raised RuntimeError('no card')",
    ),
    "raises in its score": ({"after": "def backend_score(): raise OSError(5)"}, "OSError(5)"),
    "makes something else": (
        {"after": "def backend_init(): return 3"},
        "backend_init gave int, which is no BackendReg",
    ),
    "aborts when loaded": (
        {"before": "import os; os.abort()"},
        "it ended the process that tried it: SIGABRT",
    ),
    "aborts when made": (
        {"after": "import os\ndef backend_init(): os.abort()"},
        "it ended the process that tried it: SIGABRT",
    ),
    "ends the process": ({"before": "import os; os._exit(0)"}, "it ended the process"),
    "leaves": ({"before": "import sys; sys.exit(0)"}, "it raised SystemExit(0)"),
    "is no Python": ({"before": "this is no Python"}, "it is no Python: invalid syntax in line"),
}


@pytest.mark.parametrize(("how", "words"), FAULTS.values(), ids=FAULTS)
def test_a_faulty_plug_in_is_refused_with_the_reason(tmp_path, how, words):
    path = write_plugin(tmp_path, "x", **how)
    loader = loader_of(tmp_path)
    modules = set(sys.modules)

    report = loader.load_all()

    (attempt,) = report.attempts
    assert (attempt.path, attempt.outcome) == (str(path), Outcome.REFUSED)
    assert words in attempt.reason
    assert loader.registry.regs() == ()
    assert set(sys.modules) == modules


def test_what_a_library_said_before_it_ended_the_process_is_in_the_report(tmp_path):
    text = "import os, sys; sys.stderr.write('no such card\\n'); sys.stderr.flush(); os.abort()"
    path = write_plugin(tmp_path, "x", before=text)

    report = loader_of().load(path)

    assert "it said: no such card" in report.attempts[0].reason


def test_what_a_plug_in_prints_is_not_read_as_ours(tmp_path):
    path = write_plugin(tmp_path, "x", before="print('{}')")
    loader = loader_of()

    loader.load(path)

    assert device_names(loader) == ["X"]


def test_a_library_that_hangs_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(apart, "LIMIT_S", 1)
    path = write_plugin(tmp_path, "x", before="import time; time.sleep(600)")

    report = loader_of().load(path)

    assert "it was not loaded within 1 s" in report.attempts[0].reason


def make_folder(path: Path) -> None:
    path.mkdir()


def make_unreadable(path: Path) -> None:
    """Write a file that cannot be read, not even by root."""
    if os.geteuid():
        path.touch(mode=0)
    else:
        path.symlink_to("/proc/self/mem")


def make_dangling(path: Path) -> None:
    path.symlink_to(path.with_name("gone"))


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("make", "outcome", "words"),
    [
        (make_folder, Outcome.REFUSED, "it is a folder"),
        (make_unreadable, Outcome.REFUSED, "it cannot be opened: it raised"),
        (make_dangling, Outcome.NOT_FOUND, "there is no such file"),
        (make_pipe, Outcome.REFUSED, "it is no file"),
    ],
)
@pytest.mark.parametrize("by_hand", [True, False])
def test_what_is_no_readable_file_is_a_row_too(tmp_path, make, outcome, words, by_hand):
    path = tmp_path / "splitscope_backend_x.py"
    make(path)
    loader = loader_of(tmp_path)

    report = loader.load(path) if by_hand else loader.load_all()

    assert [a.outcome for a in report.attempts] == [outcome]
    assert words in report.attempts[0].reason


@pytest.mark.parametrize(
    ("name", "outcome"), [("readme.txt", Outcome.REFUSED), ("gone.txt", Outcome.NOT_FOUND)]
)
def test_a_file_of_no_kind_is_refused(tmp_path, name, outcome):
    (tmp_path / "readme.txt").touch()

    report = loader_of().load(tmp_path / name)

    assert [a.outcome for a in report.attempts] == [outcome]


@pytest.mark.parametrize("ending", [".py", ".txt"])
def test_a_path_that_cannot_be_looked_at_is_a_row_too(tmp_path, ending):
    report = loader_of().load(tmp_path / ("x" * 300 + ending))

    assert [a.outcome for a in report.attempts] == [Outcome.REFUSED]
    assert report.attempts[0].reason == "File name too long"


class SilentKind(PythonKind):
    """Its trial ends without a word."""

    def probe(self, path):
        return Probe(opened=False)


def test_a_trial_that_says_nothing_is_no_sentence_without_an_end(tmp_path):
    report = loader_of(kind=SilentKind()).load(write_plugin(tmp_path, "x"))

    assert report.attempts[0].reason == "it cannot be opened: nothing says why"


def test_a_negative_score_never_wins(tmp_path):
    write_plugin(tmp_path, "x", "bad", score=-3)
    write_plugin(tmp_path, "x", device="BASE")
    loader = loader_of(tmp_path)

    report = loader.load_best("x")

    assert device_names(loader) == ["BASE"]
    bad = reason(report, "splitscope_backend_x-bad.py")
    assert bad == "its score is -3: a variant is chosen for one above 0"


# It is asked once in its trial; here for names first, and then to be sorted in.
TIRES = """
def devices(self, calls=[0]):
    calls[0] += 1
    if calls[0] > 1:
        raise {error}
    return self._devices
Reg.devices = devices
"""


@pytest.mark.parametrize("error", ["RuntimeError('tired')", "SystemExit(3)"])
def test_a_plug_in_that_raises_while_it_is_registered_leaves_nothing(tmp_path, error):
    write_plugin(tmp_path, "a")
    path = write_plugin(tmp_path, "b", after=TIRES.format(error=error))
    loader = loader_of(tmp_path)

    loader.load_all()

    assert reason(loader.report, path.name) == f"it raised {error}"
    assert [reg.name for reg in loader.registry.regs()] == ["A"]
    assert device_names(loader) == ["A"]
    assert loader.registry.origin(loader.registry.regs()[0]) is not None


def test_a_device_whose_name_is_taken_is_refused_in_words(tmp_path):
    write_plugin(tmp_path, "a", device="Card")
    write_plugin(tmp_path, "b", device="CARD")
    loader = loader_of(tmp_path)

    report = loader.load_all()

    assert device_names(loader) == ["Card"]
    assert "A second device would be called CARD" in reason(report, "splitscope_backend_b.py")


# --- code that nobody asked for ---------------------------------------------------------------


@pytest.mark.parametrize("writable", ["file", "folder"])
def test_code_that_others_may_write_is_not_run_from_the_current_folder(tmp_path, writable):
    folder, ran = tmp_path / "here", tmp_path / "ran"
    path = write_plugin(folder, "x", before=f"open({str(ran)!r}, 'w')")
    (path if writable == "file" else folder).chmod(0o777)
    place = SearchPath(folder, "the current folder", must_be_own=True)
    loader = Loader(Registry(), [PythonKind()], [place])

    report = loader.load_all()

    assert "it is not run unasked: others may write" in report.attempts[0].reason
    assert not ran.exists()


def test_code_of_the_user_is_run_from_there_and_the_report_says_so(tmp_path):
    path = write_plugin(tmp_path / "here", "x")
    path.chmod(0o644)
    path.parent.chmod(0o755)
    place = SearchPath(path.parent, "the current folder", must_be_own=True)
    loader = Loader(Registry(), [PythonKind()], [place])

    report = loader.load_all()

    assert device_names(loader) == ["X"]
    assert report.attempts[0].why == "the current folder"
    origin = loader.registry.origin(loader.registry.regs()[0])
    assert (origin.place, origin.decided_by) == (str(path), "the current folder")


def test_what_was_asked_for_at_another_time_must_be_own_too(tmp_path):
    path = write_plugin(tmp_path / "here", "x")
    path.chmod(0o666)
    loader = loader_of()

    remembered = loader.load(path, is_asked=False)
    asked = loader.load(path)

    assert remembered.attempts[0].reason == "it is not run unasked: others may write the file"
    assert remembered.attempts[0].why == "it is loaded at every start"
    assert asked.has_loaded


class SeenKind(PythonKind):
    """Remembers which paths were tried and opened."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def probe(self, path):
        self.seen.append(path)
        return super().probe(path)

    def open(self, path):
        self.seen.append(path)
        return super().open(path)


def test_a_link_that_was_checked_is_loaded_by_what_it_leads_to(tmp_path):
    path = write_plugin(tmp_path / "there", "x")
    path.chmod(0o644)
    link = tmp_path / "splitscope_backend_link.py"
    link.symlink_to(path)
    kind = SeenKind()
    loader = loader_of(kind=kind)

    loader.load(link, is_asked=False)

    assert kind.seen == [path, path]
    assert ends(loader.report) == {link.name: "registered"}


class CompanionKind(PythonKind):
    """Runs another file of the folder first."""

    def companions(self, path):
        return (path.with_name("base"),)


def test_what_is_run_with_a_file_must_be_own_as_well(tmp_path):
    path = write_plugin(tmp_path, "x")
    path.chmod(0o644)
    (tmp_path / "base").touch()
    (tmp_path / "base").chmod(0o666)

    report = loader_of(kind=CompanionKind()).load(path, is_asked=False)

    words = "it is not run unasked: of base, which it needs, others may write the file"
    assert report.attempts[0].reason == words


# --- the same device twice --------------------------------------------------------------------


def test_one_card_seen_by_two_backends_is_used_once(tmp_path):
    write_plugin(tmp_path, "a", device_id="0000:01:00.0")
    write_plugin(tmp_path, "b", device_id="0000:01:00.0")
    loader = loader_of(tmp_path)

    report = loader.load_all()

    assert device_names(loader) == ["A"]
    assert list(ends(report).values()) == ["registered", "hidden"]
    (hidden,) = loader.registry.unavailable()
    assert (hidden.name, hidden.hidden) == ("B", True)
    assert hidden.reason == "it is the same device as A (0000:01:00.0), which is used"


def test_what_was_hidden_is_used_when_the_other_one_leaves(tmp_path):
    write_plugin(tmp_path, "a", device_id="0000:01:00.0")
    write_plugin(tmp_path, "b", device_id="0000:01:00.0")
    loader = loader_of(tmp_path)
    loader.load_all()

    loader.unload(loader.loaded("a"))

    assert device_names(loader) == ["B"]
    assert loader.registry.unavailable() == ()
    assert list(ends(loader.report).values()) == ["unloaded", "registered"]


# --- loading by hand, again and again ---------------------------------------------------------


def test_the_same_file_is_loaded_once(tmp_path):
    path = write_plugin(tmp_path, "x")
    loader = loader_of()
    loader.load(path)

    again = loader.load(path)

    assert again.attempts[0].reason == "it is loaded already"
    assert ends(loader.report) == {path.name: "registered"}


@pytest.mark.parametrize("name", ["x", "X", "card", "{path}"])
def test_what_was_loaded_is_unloaded_by_any_of_its_names(tmp_path, name):
    path = write_plugin(tmp_path, "x", device="Card")
    loader = loader_of()
    loader.load(path)

    report = loader.unload(loader.loaded(name.format(path=path)))

    assert ends(report) == ends(loader.report) == {path.name: "unloaded"}
    assert device_names(loader) == []


@pytest.mark.parametrize(
    ("loaded", "hint"),
    [(False, "Built-in backends are left out with --backends."), (True, "Loaded are X.")],
)
def test_what_was_not_loaded_cannot_be_unloaded(tmp_path, loaded, hint):
    loader = loader_of()
    if loaded:
        loader.load(write_plugin(tmp_path, "x"))

    with pytest.raises(DeviceError) as caught:
        loader.loaded("CPU")

    assert caught.value.title == "CPU cannot be unloaded."
    assert caught.value.hint == hint


class OnceTriedKind(PythonKind):
    """Remembers what the throwaway process said: here it is this process that counts."""

    def __init__(self):
        super().__init__()
        self._probe = None

    def probe(self, path):
        self._probe = self._probe or super().probe(path)
        return self._probe


def things_held() -> tuple[int, int, int]:
    gc.collect()
    return len(sys.modules), threading.active_count(), len(list(Path("/dev/fd").iterdir()))


def test_loading_and_unloading_two_hundred_times_leaves_nothing_behind(tmp_path):
    path = write_plugin(tmp_path, "x", before="PAYLOAD = bytearray(1 << 20)")
    loader = loader_of(kind=OnceTriedKind())

    def go_round(n_times: int) -> int:
        for _ in range(n_times):
            assert loader.load(path).has_loaded
            loader.unload(loader.loaded("x"))
        gc.collect()
        return len(gc.get_objects())

    go_round(5)
    held, n_objects = things_held(), go_round(1)
    grown = go_round(200) - n_objects

    assert things_held() == held
    # One object a round would be 200.
    assert grown < 100
    assert len(loader.report.attempts) == 1


def test_a_trial_leaves_no_file_open_and_no_process(tmp_path):
    path = write_plugin(tmp_path, "x")
    PythonKind().probe(path)
    held = things_held()

    for _ in range(3):
        PythonKind().probe(path)

    assert things_held() == held
