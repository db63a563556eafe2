"""tensors: what a file holds, whatever its architecture."""

import pytest

from tests.engine.nano import nano, nano_with


def test_every_tensor_has_a_line_and_the_sum_is_last(cli):
    lines = cli("tensors", nano()).out.splitlines()

    assert lines[0].split() == ["name", "type", "ne", "MiB", "file", "offset"]
    assert lines[1].split()[:2] == ["token_embd.weight", "f32"]
    assert len(lines) == 1 + 30 + 1
    assert lines[-1].startswith("30 tensors, 0.92 MiB; ")


def test_offsets_count_from_the_start_of_the_file(cli):
    listed = cli("tensors", nano(), "--json").json

    last = listed["tensors"][-1]
    assert last["offset"] + last["bytes"] == listed["file_bytes"]
    assert listed["bytes"] == sum(tensor["bytes"] for tensor in listed["tensors"])
    assert listed["tensors"][0]["ne"] == [64, 1024, 1, 1]


def test_a_file_that_cannot_be_planned_is_sent_here_and_shown(cli, tmp_path):
    path = nano_with(tmp_path, general__architecture=None)

    refused = cli("plan", path)

    assert refused.code == 1
    assert "python -m engine tensors FILE" in refused.err
    assert cli("tensors", path).out.endswith("architecture unknown\n")


def test_a_file_that_ends_early_is_listed_and_said_so(cli, tmp_path):
    done = cli("tensors", nano_with(tmp_path, whole=False), "--json")

    assert len(done.json["tensors"]) == 30
    assert "ends too early" in done.json["problem"]
    assert "ends too early" in done.err


WEIRD = "w\nx\x1b[31m"


@pytest.mark.parametrize("command", [("tensors",), ("plan",), ("why", WEIRD)])
def test_a_name_that_would_move_the_cursor_is_written_out(cli, tmp_path, command):
    path = nano_with(tmp_path, more=[(WEIRD, (4,))])

    done = cli(command[0], path, *command[1:])
    data = cli("tensors", path, "--json").json

    said = done.out + done.err
    assert "w\\nx\\x1b[31m" in said
    assert "\x1b" not in said
    assert data["tensors"][-1]["name"] == WEIRD
