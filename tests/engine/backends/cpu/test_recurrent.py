"""SSM_CONV, SSM_SCAN and GATED_DELTA_NET against their numpy references."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from engine.core import build
from engine.core.build_recurrent import gated_delta_net, ssm_conv, ssm_scan
from engine.core.types import TensorType
from engine.errors import DeviceError
from engine.opcheck import reference_recurrent
from tests.engine.backends.cpu.cpu_split import nmse, random

F32_ROUNDING = 1e-11
SEVERAL_TOKENS = 1e-9
"""States are rounded to f32 token by token; what is lost is carried on."""


@pytest.mark.parametrize("d_conv", [2, 4])
@pytest.mark.parametrize(("t", "channels", "seqs"), [(1, 128, 1), (11, 40, 1), (3, 7, 2)])
def test_ssm_conv_multiplies_the_last_inputs_of_each_channel(
    backend, split, t, channels, seqs, d_conv
):
    x, weight = random((1, seqs, channels, d_conv - 1 + t), 1), random((1, 1, channels, d_conv), 2)

    result = split.compute(backend, ssm_conv(split.leaf(x), split.leaf(weight)))

    assert nmse(result, reference_recurrent.ssm_conv(x, weight)) <= F32_ROUNDING


class Scan(NamedTuple):
    """Sizes of a scan; with `one_rate` (Mamba 2) the states of a head decay alike."""

    d_state: int
    d: int
    heads: int
    groups: int
    tokens: int
    seqs: int
    one_rate: bool


SCANS = [
    Scan(16, 1, 128, 1, 1, 1, one_rate=False),
    Scan(16, 1, 40, 1, 10, 2, one_rate=False),
    Scan(16, 16, 8, 2, 11, 1, one_rate=True),
    Scan(128, 64, 4, 1, 3, 1, one_rate=True),
    Scan(7, 3, 6, 3, 5, 2, one_rate=False),
    Scan(21, 3, 6, 2, 4, 3, one_rate=True),
]


def scan_inputs(sizes: Scan):
    """States of one row more than sequences, x, dt, rates, b, c and ids."""
    d_state, d, heads, groups, t, seqs, one_rate = sizes
    return (
        random((seqs + 1, heads, d, d_state), 1),
        random((seqs, t, heads, d), 2),
        random((1, seqs, t, heads), 3) * np.float32(2.0),
        -np.abs(random((1, 1, heads, 1 if one_rate else d_state), 4)),
        random((seqs, t, groups, d_state), 5),
        random((seqs, t, groups, d_state), 6),
        np.arange(seqs, 0, -1, dtype=np.int32),
    )


@pytest.mark.parametrize("sizes", SCANS, ids=str)
def test_ssm_scan_gives_outputs_and_new_states(backend, split, sizes):
    *floats, ids = scan_inputs(sizes)
    leafs = [split.leaf(each) for each in floats]

    result = split.compute(backend, ssm_scan(*leafs, split.leaf(ids, TensorType.I32)))

    expected = reference_recurrent.ssm_scan(*floats, ids)
    n_outputs = floats[1].size
    flat = result.reshape(-1)
    assert nmse(flat[:n_outputs], expected[:n_outputs]) <= SEVERAL_TOKENS
    assert nmse(flat[n_outputs:], expected[n_outputs:]) <= SEVERAL_TOKENS


def test_ssm_scan_reads_inputs_out_of_a_wider_row(backend, split):
    """x, b and c lie beside one another in what the convolution gives."""
    *floats, ids = scan_inputs(Scan(16, 4, 6, 2, 5, 1, one_rate=True))
    state, _, dt, rates, _, _ = floats
    wide = random((1, 1, 5, 88), 9)
    row = split.leaf(wide)
    x = build.view(row, (4, 6, 5, 1), (16, 352, 1760))
    b, c = (build.view(row, (16, 2, 5, 1), (64, 352, 1760), 4 * at) for at in (24, 56))
    leafs = [split.leaf(each) for each in (dt, rates)]
    node = ssm_scan(split.leaf(state), x, *leafs, b, c, split.leaf(ids, TensorType.I32))

    result = split.compute(backend, x, b, c, node)

    parts = (wide[..., :24], wide[..., 24:56], wide[..., 56:])
    sources = [part.reshape(1, 5, -1, n) for part, n in zip(parts, (4, 16, 16), strict=True)]
    expected = reference_recurrent.ssm_scan(state, sources[0], dt, rates, *sources[1:], ids)
    assert nmse(result.reshape(-1), expected) <= SEVERAL_TOKENS


@pytest.mark.parametrize("bad", [-1, 2])
def test_a_state_that_does_not_exist_is_an_error_that_names_the_scan(backend, split, bad):
    *floats, _ = scan_inputs(Scan(16, 1, 4, 1, 2, 1, one_rate=False))
    leafs = [split.leaf(each) for each in floats]
    node = ssm_scan(*leafs, split.leaf(np.array([bad]), TensorType.I32))
    node.name, leafs[0].name = "ssm_scan-0", "cache_s_l0"

    with pytest.raises(DeviceError, match="cache_s_l0") as caught:
        split.compute(backend, node)

    assert caught.value.title == "The CPU cannot compute ssm_scan-0."


DELTA_NETS = [(16, 4, 2, 1, 1), (16, 4, 2, 11, 1), (128, 4, 4, 3, 1), (21, 6, 3, 4, 2)]
"""(head size, heads, heads of keys, tokens, sequences)."""


@pytest.mark.parametrize(("d", "heads", "key_heads", "t", "seqs"), DELTA_NETS)
def test_gated_delta_net_gives_outputs_and_new_states(backend, split, d, heads, key_heads, t, seqs):
    q, k = (random((seqs, t, key_heads, d), seed) / np.float32(d**0.5) for seed in (1, 2))
    v, state = random((seqs, t, heads, d), 3), random((seqs, heads, d, d), 4)
    gate = -np.abs(random((seqs, t, heads, 1), 5))
    beta = np.abs(np.sin(random((seqs, t, heads, 1), 6)))
    sources = (q, k, v, gate, beta, state)

    result = split.compute(backend, gated_delta_net(*(split.leaf(each) for each in sources)))

    expected = reference_recurrent.gated_delta_net(*sources)
    n_outputs = seqs * t
    outputs, states = result[0, 0, :n_outputs], result[0, 0, n_outputs:]
    assert nmse(outputs, expected[0, 0, :n_outputs]) <= SEVERAL_TOKENS
    assert nmse(states, expected[0, 0, n_outputs:]) <= SEVERAL_TOKENS
