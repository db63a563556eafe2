"""The answer: clauses from plans, runs and traces."""

from dataclasses import replace

import pytest

from app.shell.answer_text import (
    COPIES,
    PLANNING,
    REST,
    WAITS,
    fit_clause,
    live_clauses,
    no_plan,
    offload_clause,
    paper_clause,
    plan_clauses,
    plan_tooltip,
    prompt_shares,
    run_clauses,
)
from app.shell.markup import joined, to_plain
from app.shell.together_text import prompt_use
from app.state.app_state import RunInfo
from app.theme.text import SPACE, THIN
from engine.core.devices import BufferTypeFacts, DeviceType
from engine.core.options import Options
from engine.core.plan import Batch, MemoryKind, MemoryLedger, MemoryRow
from engine.core.summary import RunState, RunSummary, StopReason
from engine.core.table import DeviceRow, table_of_set
from engine.core.types import TensorType
from engine.gguf.reader import open_gguf
from engine.gguf.writer import header_bytes
from engine.model.planning import make_planner
from engine.trace.lanes import busy, overlap
from engine.trace.records import SpanKind
from tests.app.models import paper_pipeline, paper_run
from tests.app.shell.test_words import MODEL, plain
from tests.engine.paper import parse_virtual

MIB = 2**20


def words(clauses) -> str:
    return to_plain(joined(clauses)).replace(THIN, " ").replace(SPACE, " ")


SUMMARY = RunSummary(
    prompt="hello", prompt_tokens=(1,) * 73, tokens=(2,) * 48, text="x",
    stop_reason=StopReason.LENGTH, prefill_tokens_per_s=168.5, decode_tokens_per_s=64.0,
    prefill_ns=433_300_000, decode_step_ns=(15_620_000,) * 47, prompt_plan_id=0, token_plan_id=1,
    splits=(), copies=(),
)  # fmt: skip


def device(name: str, free_mib: int, kind=DeviceType.GPU) -> DeviceRow:
    return DeviceRow(name, name, "", kind, name, free_mib * MIB, free_mib * MIB, "")


def ledger(**mib_by_device: int) -> MemoryLedger:
    rows = (
        MemoryRow(BufferTypeFacts(name), name, MemoryKind.MODEL, n * MIB)
        for name, n in mib_by_device.items()
    )
    return MemoryLedger(tuple(rows))


def test_the_answer_is_the_designs_sentence():
    answer = words(plan_clauses(paper_run.plans(), Batch.PROMPT))

    assert answer == (
        "761 of 936 operations run on OpenCL0, 175 on CPU. It fits, 13.4 GiB to spare. "
        "321 splits for the prompt, 2 for a token. 95.56 MiB copied per prompt batch, "
        "5.5 KiB per token."
    )


def test_a_plan_without_operations_says_what_it_has(tmp_path):
    path = tmp_path / "storm.gguf"
    weight = ("blk.0.wind.weight", TensorType.F32, (64, 64))
    path.write_bytes(header_bytes({"general.architecture": "storm"}, [weight]))
    with open_gguf(path) as file:
        planner = make_planner(file, [parse_virtual("CPU:cpu:1024")], Options())
        plans = table_of_set(planner.plan_set(), 0)

    assert words(plan_clauses(plans, Batch.PROMPT)) == (
        "No operation is planned: weights and caches alone have a place. "
        "It fits, 1 024 MiB to spare."
    )


def test_the_batch_switch_changes_the_answer():
    assert words(plan_clauses(paper_run.plans(), Batch.TOKEN)).startswith(
        "For one token, 37 of 936 operations run on OpenCL0, 899 on CPU."
    )


def test_a_change_says_now():
    plans = paper_run.plans(op_offload=False)

    assert words(plan_clauses(plans, Batch.PROMPT, is_change=True)).startswith(
        "Now 37 of 936 operations run on OpenCL0"
    )


def test_the_tooltip_counts_views_and_says_that_memory_is_for_the_worst_case():
    tip = plan_tooltip(paper_run.plans(), Batch.PROMPT)

    assert tip.startswith("936 operations: ")
    assert "worst case, a full context of 512 tokens" in tip


def test_what_does_not_fit_is_named_with_both_figures():
    clause = fit_clause([device("CUDA0", 11_909)], ledger(CUDA0=12_237))

    assert words([clause]) == (
        "Does not fit: CUDA0 needs 12 237 MiB and has 11 909, over by 328 MiB."
    )


def test_the_fullest_of_several_gpus_is_named():
    devices = [device("GPU0", 4000), device("GPU1", 900), device("CPU", 50, DeviceType.CPU)]

    clause = fit_clause(devices, ledger(GPU0=1000, GPU1=500, CPU=10))

    assert words([clause]) == "It fits, 400.00 MiB to spare on GPU1."


def test_of_devices_that_are_joined_the_fullest_one_says_what_is_to_spare():
    plans = paper_pipeline.plans(split_mode="tensor")
    meta, cpu = plans.prompt.devices
    first, second = meta.members
    members = (first, replace(second, memory_free=700 * MIB))
    needed = plans.memory.shares[1].needed_bytes

    clause = fit_clause([replace(meta, members=members), cpu], plans.memory)

    spare = f"{700 - needed / MIB:.2f} MiB"
    assert words([clause]) == f"It fits, {spare} to spare on OpenCL1."


def test_devices_in_one_memory_must_fit_together():
    gpu = replace(device("GPU0", 900), shares_memory=True)
    cpu = device("CPU", 900, DeviceType.CPU)

    clause = fit_clause([gpu, cpu], ledger(GPU0=500, CPU=500))

    assert words([clause]) == "Does not fit: GPU0 and CPU work in one memory, over by 100 MiB."


def test_devices_that_say_nothing_about_memory_make_no_claim():
    assert fit_clause([device("RPC0", 0)], ledger(RPC0=100)).startswith("No device says")


def test_while_it_runs_the_answer_counts():
    run = RunInfo(
        state=RunState.GENERATING, n_tokens=12, n_predict=48, prefill_tokens_per_s=168.5,
        decode_tokens_per_s=64,
    )  # fmt: skip

    assert words(live_clauses(run)) == (
        "Prompt 168.5 tok/s. Generating, 12 of 48 tokens, 64.0 tok/s so far."
    )


def test_after_a_run_the_answer_is_speed_and_where_the_time_went():
    plans = paper_run.plans()
    spans = paper_run.run_on_paper(plans, 2).spans()

    answer = words(run_clauses(SUMMARY, plans.prompt, spans))

    assert answer.startswith(
        "Prompt 168.5 tok/s (73 tokens in 433.3 ms). Generation 64.0 tok/s (47 steps, median "
        "15.62 ms). Of the prompt, "
    )
    assert "OpenCL0 computing" in answer


def test_shares_add_up_to_the_whole():
    spans = paper_run.run_on_paper(paper_run.plans(), 1).spans()

    shares = prompt_shares(spans)

    assert set(shares) == {0, 1, COPIES, WAITS, PLANNING, REST}
    assert sum(shares.values()) == 1000


def test_shares_of_a_pipeline_count_no_time_twice():
    """Four ubatches on two GPUs, which compute at once most of the time."""
    spans = paper_pipeline.run_on_paper(4).spans()

    shares = prompt_shares(spans)

    assert sum(shares.values()) == 1000
    assert shares[0] + shares[1] > 700


def test_of_several_devices_each_has_its_own_share_of_the_prompt_and_both_together():
    """Time in which both compute is not given to the first alone."""
    plan, spans = paper_pipeline.plans().prompt, paper_pipeline.run_on_paper(4).spans()
    steps = spans[spans["kind"] == SpanKind.STEP]
    wall_ns = steps["end_ns"].max() - steps["start_ns"].min()
    by_lane = {lane: found.total_ns for lane, found in busy(spans).items()}

    answer = words(run_clauses(SUMMARY, plan, spans))

    first, second = (f"{100 * by_lane[lane] / wall_ns:.1f} %" for lane in (0, 1))
    at_once = f"{100 * overlap(spans).total_ns / wall_ns:.1f} %"
    assert f"Of the prompt, OpenCL0 computes {first}, OpenCL1 {second}, at once " in answer
    assert f"at once {at_once}, none " in answer
    assert prompt_use(spans).busy[0] + prompt_use(spans).busy[1] > 1


def test_of_devices_that_are_joined_the_members_are_said_and_when_none_computes():
    plan = paper_pipeline.joined_plans().prompt

    answer = words(run_clauses(SUMMARY, plan, paper_pipeline.joined_run().spans()))

    assert "Meta()" not in answer
    assert "OpenCL0 computes " in answer
    assert answer.endswith(" %.")
    assert ", none " in answer


def test_without_spans_nothing_is_said_about_shares():
    clauses = run_clauses(SUMMARY, paper_run.plans().prompt, None)

    assert "Of the prompt" not in words(clauses)


def test_a_stopped_run_says_so_and_speaks_of_no_speed_it_did_not_measure():
    stopped = replace(
        SUMMARY,
        stop_reason=StopReason.STOPPED,
        tokens=(1,),
        decode_step_ns=(),
        decode_tokens_per_s=0.0,
    )

    answer = words(run_clauses(stopped, None, None))

    assert answer.endswith("Stopped after 1 token.")
    assert "Generation" not in answer


def test_a_run_that_was_stopped_in_its_prompt_says_how_much_of_it_was_read():
    stopped = replace(
        SUMMARY, stop_reason=StopReason.STOPPED, tokens=(), n_unread=61, decode_step_ns=()
    )

    answer = words(run_clauses(stopped, None, None))

    assert "(12 of 73 tokens in" in answer
    assert answer.endswith("Stopped after 12 of 73 tokens of the prompt.")


@pytest.mark.parametrize("n_gpu_layers", [0, 31])
def test_clauses_name_only_devices_that_compute(n_gpu_layers):
    plans = paper_run.plans(n_gpu_layers, op_offload=False)

    answer = words(plan_clauses(plans, Batch.PROMPT))

    used = [d.name for d, n in zip(plans.prompt.devices, plans.prompt.nodes_per_device(),
                                   strict=True) if n]  # fmt: skip
    assert [name for name in ("OpenCL0", "CPU") if f"on {name}" in answer] == used


# A GPU on paper.


def test_a_device_on_paper_is_said_right_after_the_counts():
    plans = paper_run.plans_without_gpu()
    clauses = plan_clauses(plans, Batch.PROMPT)

    assert words([clauses[1]]) == (
        "GPU0 on paper: this computer has no OpenCL device, Run uses the CPU."
    )
    assert paper_clause(paper_run.plans()) == ""


def test_after_a_run_the_answer_says_where_it_ran():
    plan = replace(paper_run.plans().prompt, devices=(device("CPU", 1, DeviceType.CPU),))

    answer = words(run_clauses(SUMMARY, plan, None, ["GPU0"]))

    assert answer.startswith("Ran on the CPU: GPU0 is on paper. Prompt 168.5 tok/s")


def test_a_file_without_a_plan_has_an_answer_too():
    assert words(no_plan(MODEL)) == "No plan for llama. Listed below: 1 tensor, 92.10 MiB."


@pytest.mark.parametrize(
    ("n_gpu_layers", "op_offload", "n_tokens", "is_said"),
    [
        (15, True, 31, True),
        (15, True, 32, False),
        (15, False, 31, False),
        (-1, True, 31, False),
    ],
)
def test_a_prompt_too_short_for_op_offload_says_so(n_gpu_layers, op_offload, n_tokens, is_said):
    plans = paper_run.plans(n_gpu_layers, op_offload=op_offload)

    clause = offload_clause(plans, plans.prompt, n_tokens)

    expected = "op_offload had no effect: 31 tokens, the rule starts at 32."
    assert plain(clause) == (expected if is_said else "")
    assert (clause in run_clauses(SUMMARY, plans.prompt, None, note=clause)) is is_said
