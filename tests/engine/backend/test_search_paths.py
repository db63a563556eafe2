"""Where libraries are looked for, and whom the loader trusts."""

import os
from pathlib import Path

import pytest

from engine import paths
from engine.backend.search_paths import (
    default_folders,
    distrust,
    installed_file,
    look_at,
    named_files,
)


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


def linked(tmp_path):
    """Give a file in one folder and a link to it in another, both the user's own."""
    there, here = tmp_path / "there", tmp_path / "here"
    for folder in (there, here):
        folder.mkdir(mode=0o755)
    file, link = there / "file", here / "link"
    file.touch(mode=0o644)
    link.symlink_to(file)
    return file, link


def test_a_link_whose_folder_others_may_write_is_not_trusted_however_safe_the_file(tmp_path):
    file, link = linked(tmp_path)
    link.parent.chmod(0o777)

    assert distrust(link) == "others may write the folder of a link to it"
    assert distrust(file) == ""


def test_every_link_on_the_way_counts(tmp_path):
    _, link = linked(tmp_path)
    first = tmp_path / "first"
    first.symlink_to(link)
    assert distrust(first) == ""

    link.parent.chmod(0o777)

    assert distrust(first) == "others may write the folder of a link to it"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link away")
def test_a_link_of_somebody_else_is_not_trusted(tmp_path):
    _, link = linked(tmp_path)
    os.chown(link, 12345, -1, follow_symlinks=False)

    assert distrust(link) == "a link to it belongs to somebody else"


@pytest.mark.skipif(os.name == "nt", reason="nothing there belongs to root")
def test_what_root_installed_is_trusted_by_everybody(monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 12345)

    assert distrust(Path("/etc/passwd")) == ""


def test_links_in_a_circle_are_not_trusted_and_nothing_to_look_at(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(link)

    assert "its owner cannot be told" in distrust(link)
    assert look_at(link).is_nothing


def test_what_a_package_has_under_the_current_folder_must_be_own(tmp_path, monkeypatch):
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    for folder in (here, elsewhere):
        folder.mkdir()
    monkeypatch.chdir(here)
    (here / "link.py").symlink_to(elsewhere / "a.py")

    paths_of = [here / "deep" / "a.py", here / "link.py", elsewhere / "a.py"]
    assert [installed_file(path, "x").must_be_own for path in paths_of] == [True, True, False]


def test_a_path_that_cannot_be_looked_at_says_why_in_the_words_of_the_system(tmp_path):
    look = look_at(tmp_path / ("x" * 300))

    assert (look.problem, look.is_nothing) == ("File name too long", False)
    assert look_at(tmp_path / "gone").is_nothing
    assert look_at(tmp_path / "\0").problem
