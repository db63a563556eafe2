"""What a change of options changed, with the figures of the design."""

import pytest

from engine.core.diff import diff_plans, diff_sets
from engine.core.options import FlashAttn
from engine.core.plan import Batch, MemoryKind
from tests.engine.model.smollm2 import recorded, tables

MIB = 2**20


@pytest.fixture(scope="module")
def switched_off():
    """-ngl 2: op_offload on, then off."""
    return diff_sets(recorded("ngl2-offload"), recorded("ngl2-no-op-offload"))


def test_splits_copies_and_bytes_before_and_after(switched_off):
    prompt = switched_off.prompt

    assert (prompt.splits_was, prompt.splits_now) == (321, 2)
    assert (prompt.copies_was, prompt.copies_now) == (383, 7)
    assert round(prompt.copied_bytes_was / MIB, 2) == 95.56
    assert round(prompt.copied_bytes_now / MIB, 2) == 2.76


def test_nodes_that_moved(switched_off):
    prompt = switched_off.prompt

    assert len(prompt.moved) == 724
    assert prompt.nodes_was == {"RPC0": 761, "CPU": 175}
    assert prompt.nodes_now == {"RPC0": 37, "CPU": 899}
    moved = next(node for node in prompt.moved if node.key.name == "attn_norm-0")
    assert (moved.was_device, moved.now_device) == ("RPC0", "CPU")
    assert (moved.was_tag, moved.now_tag) == ("1.off", "1.wgt1")
    assert (moved.was_node_id, moved.now_node_id) == (2, 2)


def test_one_token_does_not_change(switched_off):
    assert switched_off.token.is_empty
    assert not switched_off.prompt.is_empty
    assert switched_off.plan(Batch.TOKEN) is switched_off.token
    assert switched_off.plan(Batch.PROMPT) is switched_off.prompt


def test_memory_is_compared_by_device_and_kind(switched_off):
    by_key = {(row.device, row.kind): row for row in switched_off.memory}

    weights = by_key["RPC0", MemoryKind.MODEL]
    assert weights.was_bytes == weights.now_bytes > 0
    compute = by_key["CPU", MemoryKind.COMPUTE]
    assert compute.was_bytes < compute.now_bytes


def test_a_device_that_is_gone_has_no_bytes_now():
    diff = diff_sets(tables("cuda", n_gpu_layers=2), tables("cpu"))

    gone = next(r for r in diff.memory if (r.device, r.kind) == ("CUDA0", MemoryKind.MODEL))
    assert gone.was_bytes > 0
    assert gone.now_bytes == 0


def test_nodes_of_one_plan_only_did_not_move():
    with_attention = tables("cpu", flash_attn=FlashAttn.ON).prompt
    without = tables("cuda", n_gpu_layers=-1, flash_attn=FlashAttn.OFF).prompt

    diff = diff_plans(with_attention, without)

    names = {node.key.name for node in diff.moved}
    assert "kq-0" not in names
    assert "embd" not in names
    assert "attn_norm-0" in names


def test_nothing_changes_from_a_plan_to_itself():
    table = tables("cuda", n_gpu_layers=2)

    assert diff_sets(table, table).prompt.is_empty
