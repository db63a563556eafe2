"""What is said of copies of experts after a run; the run is on devices that compute nothing."""

import dataclasses
import json

from engine.cli.output import mib
from engine.cli.run_words import print_run, run_data
from engine.core.experts import ExpertUse
from engine.core.summary import ExchangeSum, StopReason
from engine.report.run_sums import Generated, run_summary
from engine.trace.records import StepKind
from tests.engine.sched.expert_run import expert_run

MIB = 2**20
USE = ExpertUse(
    n_steps=2, n_copies=4, n_used=10, n_experts=32,
    copied_bytes=24 * MIB, whole_bytes=96 * MIB, copy_ns=4_000_000,
)  # fmt: skip


def summary_of(*used, kind=StepKind.TOKEN):
    table, recorder = expert_run(*used, kind=kind)
    generated = Generated("", (1,), (1,), "", StopReason.LENGTH)
    return run_summary(generated, recorder.snapshot(), {table.plan_id: table})


def with_experts(use):
    return dataclasses.replace(summary_of([1, 2]), token_experts=use)


def test_a_prompt_that_was_stopped_in_it_says_how_much_was_read(capsys):
    summary = dataclasses.replace(
        summary_of([1, 2]), prompt_tokens=(1,) * 1051, tokens=(), n_unread=939,
        stop_reason=StopReason.STOPPED,
    )  # fmt: skip

    print_run(summary)

    line = capsys.readouterr().out.splitlines()[0]
    assert line.startswith("prompt 112 of 1,051 tokens, ")
    assert line.endswith("ended: stopped after 112 of 1,051 tokens")
    assert run_data(summary, "")["n_prompt_read"] == 112


def test_exchanges_stand_beside_the_copies_of_their_graph(capsys):
    summary = summary_of([1, 2])
    found = ExchangeSum(summary.token_plan_id, 240, 6 * MIB // 5)

    print_run(dataclasses.replace(summary, exchanges=(found,)))

    line = next(x for x in capsys.readouterr().out.splitlines() if x.startswith("token: "))
    assert " MiB a graph, and 240 exchanges, 1.20 MiB" in line


def test_people_read_what_a_step_copied_and_what_all_would_have_taken(capsys):
    print_run(with_experts(USE))

    assert capsys.readouterr().out.splitlines()[-1] == (
        "token experts: 12.00 of 48.00 MiB copied a step (2.5 of 8 experts a weight on average) "
        "in 2.00 ms, measured; all would take about 8.00 ms at these 5.9 GiB/s, estimated"
    )


def test_without_a_measured_time_nothing_is_estimated(capsys):
    print_run(with_experts(ExpertUse(1, 1, 2, 8, MIB, 4 * MIB, copy_ns=0)))

    assert capsys.readouterr().out.splitlines()[-1] == (
        "token experts: 1.00 of 4.00 MiB copied a step (2.0 of 8 experts a weight on average)"
    )


def test_a_run_says_it_of_the_steps_that_copied_experts(capsys):
    summary = summary_of([7, 1, 5, 2], kind=StepKind.PROMPT)

    print_run(summary)

    lines = capsys.readouterr().out.splitlines()
    use = summary.prompt_experts
    assert use is not None
    copied, whole = mib(use.copied_bytes), mib(use.whole_bytes)
    assert lines[-1].startswith(f"prompt experts: {copied} of {whole} MiB copied a step (2.5 of 8")
    assert not any(line.startswith("token experts") for line in lines)


def test_nothing_is_said_where_no_experts_were_copied(capsys):
    print_run(with_experts(None))

    assert "experts" not in capsys.readouterr().out


def test_programs_read_the_same_figures_and_which_are_estimates():
    summary = summary_of([7, 1, 5, 2], [0, 1, 2, 3])

    data = json.loads(json.dumps(run_data(summary, "")))

    use = summary.token_experts
    assert use is not None
    told = data["token_experts"]
    assert data["prompt_experts"] is None
    assert (told["copied_bytes"], told["whole_bytes"]) == (use.copied_bytes, use.whole_bytes)
    assert told["estimated_all_ns"] == use.whole_ns
    assert told["measured_bytes_per_s"] == use.bytes_per_ns * 1e9
    assert data["copies"][0]["experts"] == [[[1, 2], [5, 5], [7, 7]], [[0, 3]]]
    assert data["copies"][0]["bytes"] == use.whole_bytes / use.n_copies
    assert sum(sum(copy["copied_bytes"]) for copy in data["copies"]) == use.copied_bytes


def test_what_programs_read_has_no_estimate_without_a_time():
    told = run_data(with_experts(ExpertUse(1, 1, 2, 8, MIB, 4 * MIB, copy_ns=0)), "")

    assert "estimated_all_ns" not in told["token_experts"]
