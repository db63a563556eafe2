"""What is said of backends, from reports as the loader makes them."""

import pytest

from app.shell.backend_text import (
    IN_THE_TABLE,
    LOAD_AGAIN,
    Loaded,
    in_use_message,
    is_backend_file,
    loaded_message,
    loading_words,
    nodes_on,
    not_again_message,
    not_remembered_message,
    nothing_message,
    unloaded_message,
)
from app.shell.planning import without_missing
from engine.core.load_report import LoadReport, Outcome
from engine.core.options import Options
from tests.app.models import paper_run
from tests.app.models.device_facts import REPORT, SLOW_PATH, attempt


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        ("/x/splitscope_backend_slow.py", True),
        ("/x/libggml-cpu-zen4.so", True),
        ("C:/x/ggml-cuda.dll", True),
        ("/x/libggml-metal.dylib", True),
        ("/x/notes.py", False),
        ("/x/model.gguf", False),
    ],
)
def test_a_backend_is_known_by_the_name_of_its_file(path, is_one):
    assert is_backend_file(path) is is_one


def test_one_new_device_is_one_line():
    message = loaded_message(Loaded((SLOW_PATH,), ("Slow",)), LoadReport(REPORT.attempts[:1]))

    assert message.text == "Slow is here, loaded from splitscope_backend_slow.py."


def test_files_that_were_not_chosen_and_refused_ones_are_counted():
    message = loaded_message(Loaded((SLOW_PATH,), ("Slow", "Fast")), REPORT)

    assert message.title.startswith("Slow and Fast are here")
    assert message.sentence == "2 other files were not chosen, 1 other file was refused."
    assert message.actions == ("show_load_report",)
    assert "libcudart.so.12" in message.details


def test_a_device_that_is_used_through_another_backend_is_said_to_be_hidden():
    message = loaded_message(Loaded((SLOW_PATH,), ()), LoadReport(REPORT.attempts[:1]))

    assert "hidden: its devices are used through another backend" in message.title


def test_a_refused_file_says_why_in_the_words_of_the_loader():
    message = nothing_message("/plugins/libggml-cuda.so", LoadReport(REPORT.attempts[3:4]))

    assert message.title == "libggml-cuda.so: no backend was loaded."
    assert message.sentence == "libcudart.so.12: cannot open shared object."


def test_of_a_folder_of_refused_files_the_first_is_named(tmp_path):
    refused = REPORT.attempts[3]
    other = attempt("libggml-rpc", refused.outcome, "it has no ggml_backend_init")

    message = nothing_message(str(tmp_path), LoadReport((refused, other)))

    assert message.sentence.startswith("libggml-cuda.so: libcudart.so.12")
    assert message.hint == "1 other file cannot be used either."


def test_a_folder_without_backends_says_how_they_are_called(tmp_path):
    message = nothing_message(str(tmp_path), LoadReport())

    assert message.sentence == "No file there is called as a backend library is."
    assert "libggml-NAME.so" in message.hint


def test_a_path_with_nothing_there_says_so(tmp_path):
    gone = attempt("gone", Outcome.NOT_FOUND, folder=str(tmp_path))

    message = nothing_message(str(tmp_path / "gone.so"), LoadReport((gone,)))

    assert message.sentence == "There is no such file or folder."


def test_what_is_not_loaded_again_says_why():
    message = not_again_message({SLOW_PATH: "the engine ended while it was being loaded"}, ())

    assert message.title == "splitscope_backend_slow.py: not loaded this time."
    assert message.sentence == "The engine ended while it was being loaded."


def test_only_a_file_of_every_start_is_said_to_be_in_the_devices_table():
    by_hand = not_again_message({SLOW_PATH: "it is a folder"}, ())
    at_start = not_again_message({SLOW_PATH: "it is a folder"}, (SLOW_PATH,))

    assert (by_hand.hint, by_hand.actions) == (LOAD_AGAIN, ("load_backend",))
    assert (at_start.hint, at_start.actions) == (IN_THE_TABLE, ("show_devices",))


def test_a_file_that_others_can_change_is_not_remembered_and_says_why():
    message = not_remembered_message(SLOW_PATH, "others may write its folder")

    assert message.title == "splitscope_backend_slow.py: not loaded at every start."
    assert message.sentence == "It would be run unasked, and others may write its folder."


def test_a_backend_in_use_says_what_its_end_means():
    n = nodes_on(paper_run.plans().prompt, ["OpenCL0"])

    message = in_use_message("OpenCL0", n)

    assert message.sentence.startswith(f"{n} operations of this plan run on it")
    assert message.actions == ("unload_backend",)
    assert in_use_message("Slow", 0).sentence.startswith("The options ask for it")


def test_no_plan_uses_no_device():
    assert nodes_on(None, ["CPU"]) == 0


def test_a_file_of_every_start_comes_back():
    assert unloaded_message("Slow", is_at_start=True).sentence.endswith("at the next start.")
    assert unloaded_message("Slow", is_at_start=False).sentence == ""


def test_one_file_is_named_and_several_are_counted():
    assert loading_words(["/x/a.so"]) == "Trying a.so in a process of its own"
    assert loading_words(["/x/a.so", "/x/b.so"]) == "Trying 2 files in a process of its own"


@pytest.mark.parametrize(
    ("named", "left"),
    [
        (None, None),
        (("none",), ("none",)),
        (("cpu", "Slow"), ("cpu",)),
        (("Slow",), None),
        ((), ()),
    ],
)
def test_options_name_no_device_that_is_gone(named, left):
    assert without_missing(Options(devices=named), ["CPU", "OpenCL0"]).devices == left
