"""Options come back for the model that had them; what cannot be used is dropped and said."""

import logging

import pytest

from app.state.option_memory import MAX_MODELS, OptionMemory
from app.state.settings import Settings
from engine.core.options import DEFAULTS, FlashAttn, Options, SplitMode, TensorOverride

ALL_KINDS = Options(
    n_gpu_layers=7,
    split_mode=SplitMode.NONE,
    tensor_split=(3.0, 1.0),
    devices=("GPU0",),
    tensor_overrides=(TensorOverride(r"blk\.1\.", "CPU"),),
    mmap=False,
    flash_attn=FlashAttn.OFF,
    cache_type_k="q8_0",
    temperature=0.0,
)


@pytest.fixture
def memory(settings):
    return OptionMemory(settings)


def test_options_of_every_kind_come_back_after_a_restart(tmp_path):
    file = tmp_path / "settings.ini"
    settings = Settings(file)
    OptionMemory(settings).remember("/m/a.gguf", ALL_KINDS)
    settings.save()

    assert OptionMemory(Settings(file)).recall("/m/a.gguf") == ALL_KINDS


def test_each_model_has_its_own(memory):
    memory.remember("a", Options(n_gpu_layers=1))
    memory.remember("b", Options(devices=()))
    memory.remember("a", Options(n_gpu_layers=2))

    assert memory.recall("a") == Options(n_gpu_layers=2)
    assert memory.recall("b") == Options(devices=())
    assert memory.recall("c") is None


def test_the_defaults_are_remembered_as_a_choice(memory):
    memory.remember("a", DEFAULTS)

    assert memory.recall("a") == DEFAULTS


def test_what_is_forgotten_is_not_recalled(memory):
    memory.remember("a", ALL_KINDS)

    memory.forget("a")

    assert memory.recall("a") is None


@pytest.mark.parametrize("values", ['{"n_batch": 0}', '{"colour": "blue"}', '{"devices": 3}'])
def test_options_that_are_not_allowed_are_dropped_with_a_warning(settings, caplog, values):
    settings.option_sets = f'{{"a": {values}, "b": {{"n_gpu_layers": 3}}}}'
    memory = OptionMemory(settings)

    with caplog.at_level(logging.WARNING):
        assert memory.recall("a") is None

    assert "options of a" in caplog.text
    assert memory.recall("b") == Options(n_gpu_layers=3)


@pytest.mark.parametrize("text", ["nonsense", "[1]", '{"a": 3}'])
def test_settings_that_cannot_be_read_start_anew(settings, caplog, text):
    settings.option_sets = text

    with caplog.at_level(logging.WARNING):
        assert OptionMemory(settings).recall("a") is None

    assert "cannot be read" in caplog.text
    assert settings.option_sets == "{}"


def test_the_models_used_last_are_kept(memory):
    for i in range(MAX_MODELS + 1):
        memory.remember(f"{i}", Options(n_gpu_layers=i))

    assert memory.recall("0") is None
    assert memory.recall("1") == Options(n_gpu_layers=1)
    assert memory.recall(f"{MAX_MODELS}") == Options(n_gpu_layers=MAX_MODELS)
