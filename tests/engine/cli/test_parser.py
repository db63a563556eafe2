"""The command line holds every option of the table, as llama.cpp spells them."""

import pytest

from engine.cli.main import parse
from engine.cli.parser import with_given
from engine.core.options import DEFAULTS, LayerRule, Options, SplitMode, TensorOverride
from engine.errors import UserError


def options(*words):
    return with_given(DEFAULTS, parse(["plan", "x.gguf", *words]))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", Options()),
        ("-sm none -mg 1", Options(split_mode=SplitMode.NONE, main_gpu=1)),
        ("-sm none -mg -1", Options(split_mode=SplitMode.NONE, main_gpu=-1)),
        ("-ts 3,1", Options(tensor_split=(3.0, 1.0))),
        ("--cpu-moe --n-cpu-moe 2", Options(cpu_moe=True, n_cpu_moe=2)),
        ("-nkvo --no-repack", Options(offload_kqv=False, repack=False)),
        ("--no-mmap --no-host", Options(mmap=False, host_buffer=False)),
        ("-ctk q8_0 -ctv f32", Options(cache_type_k="q8_0", cache_type_v="f32")),
        ("--layer-rule output-last", Options(layer_rule=LayerRule.OUTPUT_LAST)),
    ],
)
def test_options_are_typed_as_in_llama_cpp(line, expected):
    assert options(*line.split()) == expected


def test_overrides_may_be_repeated_and_keep_their_order():
    found = options("-ot", "a=CPU,b=GPU0", "--override-tensor", "c=CPU").tensor_overrides

    assert found == (
        TensorOverride("a", "CPU"), TensorOverride("b", "GPU0"), TensorOverride("c", "CPU")
    )  # fmt: skip


def test_an_override_without_memory_is_refused():
    with pytest.raises(UserError) as caught:
        options("-ot", "ffn")

    assert caught.value.title.startswith("-ot cannot be ffn=.")


def test_command_arguments_are_read_back():
    made = Options(
        n_gpu_layers=3, tensor_split=(1, 2.5), cpu_moe=True, mmap=False,
        tensor_overrides=(TensorOverride(r"blk\\.1\\.ffn_.*", "CPU"),),
    )  # fmt: skip

    assert options(*made.command_args()) == made
