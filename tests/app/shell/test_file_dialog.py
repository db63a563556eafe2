"""The dialog says what files are without opening them."""

import pytest
from PySide6.QtCore import QFileInfo
from PySide6.QtWidgets import QWidget

from app.shell.file_dialog import FileDialog, PlainIcons


@pytest.fixture
def picture(tmp_path):
    """Return a file whose content says something else than its name."""
    path = tmp_path / "model.gguf"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" * 8)
    return path


def test_files_are_named_by_their_ending_alone(qapp, picture):
    icons = PlainIcons()

    assert icons.type(QFileInfo(str(picture))) == "gguf file"
    assert icons.type(QFileInfo(str(picture.with_name("kmsg")))) == "file"
    assert icons.type(QFileInfo(str(picture.parent))) == "Folder"


def test_a_file_and_a_folder_have_different_icons(qapp, picture):
    icons = PlainIcons()

    file, folder = (icons.icon(QFileInfo(str(p))) for p in (picture, picture.parent))

    assert file.cacheKey() != folder.cacheKey()


def test_the_dialog_asks_these_icons(qtbot, picture):
    parent = QWidget()
    qtbot.addWidget(parent)

    dialog = FileDialog(parent, "Open", str(picture.parent), "All files (*)")

    assert isinstance(dialog.iconProvider(), PlainIcons)
