"""Expert copies of a real run in both formats: arguments, and sums that equal the run's."""

import json
from decimal import Decimal

import pytest

from engine.core.options import Options
from engine.core.summary import StopReason
from engine.report.run_sums import Generated, run_summary
from engine.report.trace_names import trace_meta
from engine.trace.export.chrome import document
from engine.trace.export.perfetto import packets
from tests.engine.sched.expert_run import EXPERT_BYTES, N_EXPERTS, PAD_BYTES, expert_run
from tests.engine.trace.export.decoded import Decoded

WHOLE = N_EXPERTS * EXPERT_BYTES


@pytest.fixture(scope="module")
def ran():
    """Return the plans and the trace of two steps."""
    table, recorder = expert_run((7, 1, 5, 2), (0, 1, 2, 3))
    return {table.plan_id: table}, recorder.snapshot()


@pytest.fixture(scope="module")
def chrome(ran):
    """Return (ns, arguments) of every copy that was written."""
    plans, snapshot = ran
    text = "".join(document(trace_meta(plans, Options(), "m"), snapshot))
    events = json.loads(text, parse_float=Decimal)["traceEvents"]
    copies = [event for event in events if event["ph"] == "X" and event["cat"] == "copy"]
    return [(int(event["dur"] * 1000), event["args"]) for event in copies]


@pytest.fixture(scope="module")
def perfetto(ran):
    """Return (ns, arguments) of every copy that was written."""
    plans, snapshot = ran
    decoded = Decoded(b"".join(packets(trace_meta(plans, Options(), "m"), snapshot)))
    copies = [piece for piece in decoded.slices if piece["category"] == "copy"]
    return [(piece["end"] - piece["start"], piece["args"]) for piece in copies]


@pytest.fixture(params=["chrome", "perfetto"])
def written(request):
    """Return what one of the formats has."""
    return request.getfixturevalue(request.param)


def test_a_piece_says_which_experts_of_how_many_its_bytes_and_those_of_all(written):
    pieces = [args for _, args in written if (args["copy"], args["step"]) == (0, 0)]

    assert [(args["experts"], args["bytes"]) for args in pieces] == [
        ("1-2", 2 * EXPERT_BYTES + PAD_BYTES),
        ("5", EXPERT_BYTES + PAD_BYTES),
        ("7", EXPERT_BYTES),
    ]
    assert {args["of experts"] for args in pieces} == {N_EXPERTS}
    assert {args["bytes of all experts"] for args in pieces} == {WHOLE}


def test_other_copies_name_no_experts(written):
    others = [args for _, args in written if args["what"] != "weight"]

    assert others
    assert not any("experts" in word for args in others for word in args)


def test_sums_over_the_file_equal_the_sums_of_the_run(ran, written):
    plans, snapshot = ran
    summary = run_summary(Generated("", (1,), (1,), "", StopReason.LENGTH), snapshot, plans)

    for copy in summary.copies:
        mine = [(ns, args["bytes"]) for ns, args in written if args["copy"] == copy.id]
        assert sum(ns for ns, _ in mine) == sum(copy.time_ns)
        moved = copy.copied_bytes or (copy.n_bytes,) * len(copy.time_ns)
        assert sum(n_bytes for _, n_bytes in mine) == sum(moved)
    use = summary.token_experts
    assert use is not None
    pieces = [(ns, args["bytes"]) for ns, args in written if "experts" in args]
    assert (sum(ns for ns, _ in pieces), sum(n for _, n in pieces)) == (
        use.copy_ns, use.copied_bytes,
    )  # fmt: skip
