from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from engine.errors import ExportError
from engine.trace.export import atomic
from engine.trace.export.atomic import check_target, write_atomically


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


def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "middle").symlink_to("far/a.bin")
    (tmp_path / "link").symlink_to(tmp_path / "middle")

    write_atomically(tmp_path / "link", [b"new"])

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "middle").is_symlink()
    assert (tmp_path / "far" / "a.bin").read_bytes() == b"new"
    assert [path.name for path in (tmp_path / "far").iterdir()] == ["a.bin"]


def test_a_link_that_leads_in_a_circle_is_told(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")

    with pytest.raises(ExportError, match="This link leads nowhere"):
        check_target(tmp_path / "a")


def test_a_model_behind_a_link_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF and its weights")
    (tmp_path / "link").symlink_to("model.gguf")

    with pytest.raises(ExportError, match="It is a model"):
        check_target(tmp_path / "link")


def test_nothing_is_written_among_the_systems_own(tmp_path: Path, monkeypatch) -> None:
    """A folder stands for /dev: its link `stdout` leads out of it, to a file."""
    system = tmp_path / "dev"
    system.mkdir()
    (system / "stdout").symlink_to(tmp_path / "file")
    (tmp_path / "folder").symlink_to(system)
    (tmp_path / "link").symlink_to(system / "stdout")
    monkeypatch.setattr(atomic, "SYSTEM_FOLDERS", (system,))

    for path in (system / "new", system / "stdout", tmp_path / "link", tmp_path / "folder/stdout"):
        with pytest.raises(ExportError, match="the system's own"):
            check_target(path)

    assert [path.name for path in system.iterdir()] == ["stdout"]


def test_the_systems_own_folders_are_known() -> None:
    for name in ("/dev/null", "/proc/self/new", "/sys/new", "/dev"):
        with pytest.raises(ExportError, match="the system's own"):
            check_target(Path(name))


def test_a_folder_is_named_itself_and_the_systems_words_are_whole(tmp_path: Path) -> None:
    with pytest.raises(ExportError) as caught:
        check_target(tmp_path)

    assert caught.value.sentence == f"There is a folder of that name: {tmp_path}"
    assert caught.value.details == f"[Errno 21] Is a directory: '{tmp_path}'"


def test_a_missing_folder_is_told_with_the_name_that_was_given(tmp_path: Path) -> None:
    path = tmp_path / "none" / "a.bin"

    with pytest.raises(ExportError) as caught:
        check_target(path)

    assert caught.value.sentence == f"This folder does not exist: {tmp_path / 'none'}"
    assert caught.value.details == f"[Errno 2] No such file or directory: '{path}'"
