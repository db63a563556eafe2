"""What is remembered comes back; what cannot be read is dropped with a warning."""

import logging
from pathlib import Path

import pytest
from PySide6.QtCore import QByteArray

from app.state.settings import DEFAULT_N_PREDICT, MAX_RECENT, RecentFile, Settings
from app.theme.theme import ThemeChoice


def recent(name: str) -> RecentFile:
    return RecentFile(f"/models/{name}", name, "llama · Q4_1", 100, "2026-11-24T12:41+00:00")


def test_values_come_back_after_a_restart(tmp_path):
    file = tmp_path / "settings.ini"
    first = Settings(file)
    first.theme = ThemeChoice.DARK
    first.n_predict = 7
    first.shows_path = True
    first.layout = QByteArray(b"panes")
    first.add_recent(recent("a.gguf"))
    first.save()

    second = Settings(file)

    assert second.theme is ThemeChoice.DARK
    assert second.n_predict == 7
    assert second.shows_path
    assert second.layout == QByteArray(b"panes")
    assert second.recent == (recent("a.gguf"),)


def test_a_new_start_has_defaults(settings):
    assert settings.theme is ThemeChoice.SYSTEM
    assert settings.n_predict == DEFAULT_N_PREDICT
    assert not settings.shows_path
    assert settings.geometry is None
    assert settings.recent == ()


@pytest.mark.parametrize(
    "lines",
    [
        "theme=purple",
        "n_predict=-4",
        "n_predict=many",
        "recent=nonsense",
        'recent="[3]"',
        "critical_path=maybe",
    ],
)
def test_a_bad_value_is_dropped_with_a_warning(tmp_path, caplog, lines):
    file = tmp_path / "settings.ini"
    file.write_text(f"[General]\n{lines}\n")

    with caplog.at_level(logging.WARNING):
        settings = Settings(file)
        values = (settings.theme, settings.n_predict, settings.recent, settings.shows_path)

    assert values == (ThemeChoice.SYSTEM, DEFAULT_N_PREDICT, (), False)
    assert lines.partition("=")[0] in caplog.text


def test_the_folder_of_exports_is_remembered_while_it_is_there(settings, tmp_path):
    assert settings.export_folder == str(Path.home())

    settings.export_folder = str(tmp_path)
    assert settings.export_folder == str(tmp_path)

    settings.export_folder = str(tmp_path / "gone")
    assert settings.export_folder == str(Path.home())


def test_a_layout_of_another_version_is_not_used(tmp_path):
    settings = Settings(tmp_path / "settings.ini")
    settings.layout = QByteArray(b"panes")
    settings._values.setValue("window/layout_version", 0)

    assert settings.layout is None


def test_the_newest_file_comes_first_and_the_list_ends(settings):
    for i in range(MAX_RECENT + 2):
        settings.add_recent(recent(f"{i}.gguf"))
    settings.add_recent(recent("5.gguf"))

    names = [file.name for file in settings.recent]
    assert names[:2] == ["5.gguf", f"{MAX_RECENT + 1}.gguf"]
    assert len(names) == MAX_RECENT == len(set(names))


def test_files_of_every_start_come_back_each_once(tmp_path):
    file = tmp_path / "settings.ini"
    first = Settings(file)
    first.start_backends = ("/x/a.so", "/x/b.so", "/x/a.so")
    first.save()

    assert Settings(file).start_backends == ("/x/a.so", "/x/b.so")


@pytest.mark.parametrize("text", ["no json", "7", '["relative.so"]', "[3]"])
def test_files_of_every_start_that_cannot_be_read_are_dropped(tmp_path, caplog, text):
    settings = Settings(tmp_path / "settings.ini")
    settings._values.setValue("start_backends", text)

    with caplog.at_level(logging.WARNING):
        assert settings.start_backends == ()

    assert "start_backends" in caplog.text


def test_a_folder_of_backends_that_is_gone_is_the_home_folder(tmp_path):
    settings = Settings(tmp_path / "settings.ini")
    settings.backend_folder = str(tmp_path)
    assert settings.backend_folder == str(tmp_path)

    settings.backend_folder = str(tmp_path / "gone")

    assert settings.backend_folder == str(Path.home())
