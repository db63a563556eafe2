from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from engine.errors import ExportError
from engine.trace.export.atomic import write_atomically

if TYPE_CHECKING:
    from pathlib import Path


def test_the_parts_are_written_one_after_another(tmp_path: Path):
    write_atomically(tmp_path / "a.bin", iter([b"one", b"", b"two"]))

    assert (tmp_path / "a.bin").read_bytes() == b"onetwo"
    assert [path.name for path in tmp_path.iterdir()] == ["a.bin"]


def test_a_file_that_was_there_is_replaced_only_by_a_whole_one(tmp_path: Path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")

    def parts():
        yield b"new"
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(ExportError) as caught:
        write_atomically(path, parts())

    assert path.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.bin"]
    assert caught.value.title == "Cannot write a.bin"
    assert caught.value.sentence == f"The disk is full: {tmp_path}"
    assert caught.value.hint == "Free some space or choose another disk."


def test_nothing_is_left_when_the_data_cannot_be_made(tmp_path: Path):
    def parts():
        yield b"new"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_atomically(tmp_path / "a.bin", parts())

    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_missing_is_named(tmp_path: Path):
    with pytest.raises(ExportError, match="This folder does not exist"):
        write_atomically(tmp_path / "none" / "a.bin", [b""])


def test_a_file_in_place_of_the_folder_is_told(tmp_path: Path):
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(ExportError, match="This is not a folder"):
        write_atomically(tmp_path / "file" / "a.bin", [b""])


def test_a_folder_of_the_same_name_is_told(tmp_path: Path):
    (tmp_path / "a.bin").mkdir()

    with pytest.raises(ExportError) as caught:
        write_atomically(tmp_path / "a.bin", [b"x"])

    assert caught.value.hint
    assert [path.name for path in tmp_path.iterdir()] == ["a.bin"]


def test_a_folder_that_is_there_and_takes_no_files_is_not_called_missing(tmp_path: Path):
    """So say the system's own folders, such as /proc."""

    def parts():
        yield b""
        raise OSError(errno.ENOENT, "No such file or directory")

    with pytest.raises(ExportError, match="This folder takes no files"):
        write_atomically(tmp_path / "a.bin", parts())


def test_an_unknown_reason_is_told_in_the_systems_words(tmp_path: Path):
    def parts():
        yield b""
        raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(ExportError, match="Input/output error"):
        write_atomically(tmp_path / "a.bin", parts())


def test_a_pipe_is_not_replaced_by_a_file(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    with pytest.raises(ExportError, match="device or a pipe"):
        write_atomically(pipe, [b"x"])

    assert pipe.is_fifo()


def test_a_model_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF and its weights")

    with pytest.raises(ExportError, match="It is a model"):
        write_atomically(path, [b"a trace"])

    assert path.read_bytes() == b"GGUF and its weights"
