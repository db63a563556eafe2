"""devices: what is there, what was left out, and what became of every path."""

import pytest

from engine import paths
from tests.engine.nano import nano
from tests.engine.plugins import write_plugin

TEMPLATE = paths.resources_dir() / "templates" / "splitscope_backend_slow.py"


def test_a_loaded_device_is_listed_with_how_it_got_here(cli, tmp_path):
    path = write_plugin(tmp_path, "x", score=5, device="Card", device_id="0000:01:00.0")

    found = cli("devices", "--backends", "cpu", "--load", path, "--json").json

    card, cpu = found["devices"]
    assert (card["name"], card["device_id"], card["reg"]) == ("Card", "0000:01:00.0", "X")
    assert card["origin"]["linkage"] == "dynamic"
    assert (card["origin"]["place"], card["origin"]["score"]) == (str(path), 5)
    assert cpu["origin"]["linkage"] == "static"
    (attempt,) = found["load_report"]["attempts"]
    assert (attempt["outcome"], attempt["symbol"]) == ("registered", "backend_init")
    assert (attempt["api_version"], attempt["score"]) == (2, 5)


def test_the_same_is_printed_for_people(cli, tmp_path):
    write_plugin(tmp_path, "x", "good", score=5, device="Card")
    write_plugin(tmp_path, "x", "bad", score=0)

    printed = cli("devices", "--backends", "cpu", "--load", tmp_path).out

    assert "OpenCL: hidden, it is off: --backends is cpu." in printed
    assert f"dynamic, from {tmp_path / 'splitscope_backend_x-good.py'}" in printed
    assert "backend_init, API version 2, score 5" in printed
    assert "its score is 0: it does not support this computer" in printed


def test_a_library_that_cannot_be_loaded_is_a_row_and_an_exit_code(cli, tmp_path):
    path = write_plugin(tmp_path, "x", before="import os; os.abort()")

    done = cli("devices", "--backends", "cpu", "--load", path, "--json")

    assert done.code == 1
    assert [device["name"] for device in done.json["devices"]] == ["CPU"]
    assert "SIGABRT" in done.json["load_report"]["attempts"][0]["reason"]


def test_what_has_nothing_is_counted_for_people(cli):
    printed = cli("devices", "--backends", "cpu").out

    assert "Tried too, and nothing there: " in printed


@pytest.mark.parametrize("command", [["plan"], ["run", "-p", "a"]])
def test_a_command_that_needs_the_library_says_why_it_is_not_there(cli, tmp_path, command):
    path = write_plugin(tmp_path, "x", before="raise OSError('no card')")

    done = cli(command[0], nano(), *command[1:], "--load", path)

    assert done.code == 1
    assert done.err.startswith("No backend was loaded.")
    assert "it raised OSError('no card')" in done.err


def test_an_unknown_built_in_backend_is_refused(cli):
    done = cli("devices", "--backends", "cpuu")

    assert done.code == 1
    assert done.err.startswith("There is no built-in backend cpuu.")


# --- the template, as its first lines say ------------------------------------------------------


def test_the_template_runs_layers_and_gives_what_the_cpu_gives(cli):
    options = ("--backends", "cpu", "-c", 256, "-p", "The capital", "-n", 6, "--temp", 0, "--json")

    alone = cli("run", nano(), *options).json
    slow = cli("run", nano(), *options, "--load", TEMPLATE, "--devices", "slow").json

    assert slow["tokens"] == alone["tokens"]
    assert "Slow" in {split["backend"] for split in slow["splits"]}


def test_a_loaded_device_is_planned_for_by_name(cli):
    planned = cli("plan", nano(), "--load", TEMPLATE, "--devices", "slow", "-ngl", 1, "--json").json

    assert "Slow" in {split["backend"] for split in planned["prompt"]["splits"]}
