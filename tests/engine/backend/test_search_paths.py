"""Where libraries are looked for, and whom the loader trusts."""

import os
from pathlib import Path

import pytest

from engine import paths
from engine.backend.search_paths import default_folders, distrust, named_files


def test_the_folders_stand_in_order_and_only_the_current_one_must_be_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    folders = default_folders()

    assert [(f.path, f.must_be_own) for f in folders] == [
        (paths.backends_dir(), False),
        (paths.repository_dir(), False),
        (tmp_path, True),
    ]


def test_a_folder_that_is_two_things_is_searched_once(monkeypatch):
    monkeypatch.chdir(paths.repository_dir())

    assert [f.why for f in default_folders()] == ["the folder of plug-ins", "the program's folder"]


def test_a_current_folder_that_is_gone_stops_nothing(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    assert len(default_folders()) == 2


def test_two_variables_name_a_file_each():
    environment = {"SPLITSCOPE_BACKEND_PATH": "/b.py", "GGML_BACKEND_PATH": "/a.so", "PATH": "/c"}

    files = named_files(environment)

    assert [(f.path, f.why) for f in files] == [
        (Path("/a.so"), "GGML_BACKEND_PATH"),
        (Path("/b.py"), "SPLITSCOPE_BACKEND_PATH"),
    ]
    assert named_files({"GGML_BACKEND_PATH": ""}) == ()


@pytest.mark.parametrize(
    ("file_mode", "folder_mode", "words"),
    [
        (0o644, 0o755, ""),
        (0o664, 0o755, "others may write the file"),
        (0o646, 0o755, "others may write the file"),
        (0o644, 0o775, "others may write its folder"),
        (0o644, 0o777, "others may write its folder"),
    ],
)
def test_what_others_may_write_is_not_trusted(tmp_path, file_mode, folder_mode, words):
    folder = tmp_path / "folder"
    folder.mkdir()
    file = folder / "file"
    file.touch()
    file.chmod(file_mode)
    folder.chmod(folder_mode)

    assert distrust(file) == words


@pytest.mark.parametrize("thing", ["file", "folder"])
def test_what_belongs_to_somebody_else_is_not_trusted(tmp_path, thing, monkeypatch):
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o755)
    file = folder / "file"
    file.touch(mode=0o644)
    if os.geteuid():
        # Only root can give files away: let the user be another one instead.
        monkeypatch.setattr(os, "getuid", lambda: os.geteuid() + 1)
        assert distrust(file) == "the file belongs to somebody else"
        return
    os.chown(file if thing == "file" else folder, 12345, -1)

    assert distrust(file).endswith("belongs to somebody else")


def test_a_link_is_as_trusted_as_what_it_leads_to(tmp_path):
    there, here = tmp_path / "there", tmp_path / "here"
    for folder in (there, here):
        folder.mkdir(mode=0o755)
    file = there / "file"
    file.touch(mode=0o644)
    link = here / "file"
    link.symlink_to(file)
    there.chmod(0o777)

    assert distrust(link) == "others may write its folder"
