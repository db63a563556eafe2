"""Measuring itself: turns, ceilings, processes, and what they tell."""

import dataclasses
import struct
from pathlib import Path

import numpy as np
import pytest

from tests.bench import ceilings as ceilings_module
from tests.bench.ceilings import (
    Ceilings,
    _run_f32,
    _run_int8,
    _run_read_ahead,
    _run_read_plain,
)
from tests.bench.machine_facts import processor
from tests.bench.models import read_bytes
from tests.bench.op_pairs import cases_of_group, is_batch
from tests.bench.ops import cells
from tests.bench.peer_builds import CHILD
from tests.bench.process_memory import above, mapped_bytes, status_bytes, touched_bytes
from tests.bench.race import Lap, Race, Work, invalid_because, run_race, variations
from tests.bench.speed import work_figures
from tests.bench.startup import started, words_of
from tests.bench.tools import OURS
from tests.bench.wire import Child, ChildError, answer_of

DECODE = Work("decode", 4)


class FakeSide:
    """Answers at once; both sides write down who was asked."""

    def __init__(self, name: str, asked: list[str], seconds: float) -> None:
        self.name, self.asked, self.seconds = name, asked, seconds

    def ask(self, what: str, *, tokens: list[int]) -> dict[str, object]:
        self.asked.append(f"{self.name} {what} {len(tokens)}")
        return {"seconds": self.seconds, "each": [self.seconds / len(tokens)] * len(tokens)}


class FakeCeilings:
    def measure(self) -> dict[str, float]:
        return {"read 2": 10.0}


def raced(n_sides: int, n_pairs: int, **limits: float) -> tuple[Race, list[str]]:
    asked: list[str] = []
    sides = [FakeSide("AB"[i], asked, float(i + 1)) for i in range(n_sides)]
    race = run_race(
        sides, (DECODE,), FakeCeilings(),  # type: ignore[arg-type] # they answer as the real ones
        n_pairs=n_pairs, say=lambda _: None, **limits,
    )  # fmt: skip
    return race, asked


def test_both_sides_warm_up_and_then_take_turns():
    _, asked = raced(2, 3)

    assert [line[0] for line in asked] == ["A", "B", *"ABBAAB"]


def test_laps_are_kept_by_side_in_the_order_of_pairs():
    race, _ = raced(2, 3)

    assert race.seconds(DECODE, 0) == [1.0] * 3
    assert race.seconds(DECODE, 1) == [2.0] * 3
    assert race.later_seconds(DECODE, 1) == [1.5] * 3
    assert race.ceiling("read 2") == [10.0] * 3


def test_one_side_alone_is_measured_as_often():
    race, asked = raced(1, 3)

    assert len(asked) == 4
    assert [len(side) for side in race.laps[DECODE]] == [3]


def test_when_time_is_up_no_other_pair_begins():
    race, asked = raced(2, 3, within_s=0.0)

    assert len(race.ceilings) == 1
    assert [line[0] for line in asked] == ["A", "B", "A", "B"]


def test_both_sides_get_the_same_tokens_in_every_run():
    assert DECODE.tokens() == Work("decode", 4).tokens()
    assert len(set(Work("prefill", 128).tokens())) > 100


def test_only_ceilings_with_as_many_threads_decide_whether_a_run_counts():
    passes = [{"read 1": 1.0, "read 2": 1.0}, {"read 1": 9.0, "read 2": 1.1}]

    moved = variations(passes, 2)

    assert list(moved) == ["read 2"]
    assert invalid_because(moved) == []
    assert invalid_because(variations(passes, 1)) == ["read 1 varies by 128%"]


def test_the_share_of_a_ceiling_is_what_tokens_read_over_what_memory_gives():
    lap = Lap(2.0, (1.0, 0.5, 0.25, 0.25))
    race = Race({DECODE: ((lap,), (dataclasses.replace(lap, seconds=4.0),))}, ({"read 2": 10.0},))

    figures = work_figures(race, DECODE, n_threads=2, n_bytes=1_000_000_000)

    assert figures == {
        "decode 4 ratio": 2.0, "decode 4 later ratio": 1.0, "decode 4 share": 0.2,
        "decode 4 peer share": 0.1,
    }  # fmt: skip


def test_a_token_reads_tied_embeddings_as_output_and_others_not_at_all():
    sizes = {"token_embd.weight": 100, "blk.0.ffn_up.weight": 7}

    assert read_bytes(sizes) == 107
    assert read_bytes({**sizes, "output.weight": 50}) == 57


ROW = {
    "op": "MUL_MAT", "type": "f32", "case": "", "n_prompt": 0, "n_token": 0, "n_bytes": 4e9,
    "n_flops": 2e9, "is_batch": False,
}  # fmt: skip
CEILINGS = {"read 2": 10.0, "int8 2": 1000.0, "f32 2": 100.0}


def test_one_column_is_told_in_bytes_and_a_batch_in_operations():
    vector = cells({**ROW, "seconds": [[1.0], [2.0]]}, CEILINGS, 2)
    batch = cells({**ROW, "is_batch": True, "n_flops": 50e9, "seconds": [[1.0]]}, CEILINGS, 2)
    whole = cells({**ROW, "type": "q8_0", "is_batch": True, "seconds": [[1.0]]}, CEILINGS, 2)

    assert vector[6:] == (1e6, 2e6, 2.0, 4.0, "GB/s", 0.4)
    assert batch[6:] == (1e6, None, None, 50.0, "GOP/s", 0.5)
    assert whole[6:] == (1e6, None, None, 2.0, "GOP/s", 0.002)


def test_an_operation_of_a_model_has_its_counts_and_no_share_of_a_ceiling():
    told = cells({**ROW, "n_prompt": 59, "n_token": 61, "seconds": [[1.0], [1.0]]}, CEILINGS, 2)

    assert told[4:6] == (59, 61)
    assert told[-1] is None


def test_the_large_products_are_those_of_every_type_in_one_column_and_in_many():
    (column, batch) = cases_of_group("q4_K", Path("unused.gguf"))

    assert (is_batch(column.case), is_batch(batch.case)) == (False, True)
    assert column.case.n_flops == 2 * 4096 * 4096


@pytest.mark.parametrize("run", [_run_read_plain, _run_read_ahead])
def test_reading_reads_everything(run):
    numbers = np.ones(64 * 64, np.int64)

    assert run(int(numbers.ctypes.data), numbers.nbytes) == numbers.nbytes // 64


@pytest.mark.parametrize(("n_steps", "total"), [(0, 66.0), (1, 39.0), (100, 12.0)])
def test_multiplying_floats_does_every_step(n_steps, total):
    bits = _run_f32(n_steps)

    assert struct.unpack("f", struct.pack("i", bits))[0] == pytest.approx(total)


@pytest.mark.parametrize("n_steps", [0, 1, 5])
def test_multiplying_bytes_does_every_step(n_steps):
    assert _run_int8(n_steps) == 66 + 12 * 3 * sum(range(n_steps))


def test_a_pass_gives_every_ceiling_for_every_number_of_threads(monkeypatch):
    monkeypatch.setattr(ceilings_module, "BUFFER_BYTES", 1 << 20)
    monkeypatch.setattr(ceilings_module, "N_STEPS", 10)
    ceilings = Ceilings((2, 1, 2))

    found = ceilings.measure()

    names = [f"{kind} {n}" for n in (1, 2) for kind in ("read", "f32", "int8")]
    assert list(found) == names
    assert all(value > 0 for value in found.values())
    assert ceilings.passes == [found]


STATUS = """Name:\tpython
VmHWM:\t  400 kB
VmRSS:\t  300 kB
RssAnon:\t  100 kB
RssFile:\t  190 kB
RssShmem:\t  10 kB
Threads:\t3
"""
SMAPS = """7f00-7f10 r--p 00000000 00:1f 123      /models/a b.gguf
Size:                 64 kB
Rss:                  20 kB
7f10-7f20 r--p 00010000 00:1f 123      /models/a b.gguf
Rss:                   5 kB
7f20-7f30 rw-p 00000000 00:00 0
Rss:                 100 kB
7f30-7f40 r-xp 00000000 00:1f 124      /lib/libc.so.6
Rss:                   7 kB
"""


def test_memory_is_read_from_what_linux_tells():
    assert status_bytes(STATUS) == {
        "VmHWM": 409600, "VmRSS": 307200, "RssAnon": 102400, "RssFile": 194560, "RssShmem": 10240,
    }  # fmt: skip
    assert mapped_bytes("/models/a b.gguf", SMAPS) == 25 * 1024
    assert mapped_bytes("/models/other.gguf", SMAPS) == 0


def test_memory_above_the_plan_leaves_out_files_caches_and_compute_buffers():
    planned = {"kv": 10, "state": 5, "compute": 20, "model": 1000, "output": 3}

    assert above({"VmHWM": 400}, 100, planned) == 265


def test_what_is_mapped_and_was_copied_too_was_touched_once():
    assert touched_bytes(60, 30, 100) == 90
    assert touched_bytes(90, 30, 100) == 100


def test_the_processor_is_named_as_the_system_names_it():
    assert processor("processor\t: 0\nmodel name\t: Fast One 9\n") == "Fast One 9"
    assert processor("")


def test_a_request_that_goes_wrong_is_answered_with_what_went_wrong():
    handlers = {"half": lambda n: {"n": n // 2}, "fail": lambda: {}["x"]}

    assert answer_of(handlers, "half", {"n": 6}) == {"n": 3}
    assert answer_of(handlers, "fail", {}) == {"error": "KeyError: 'x'"}
    assert answer_of(handlers, "other", {}) == {"error": "there is no request other"}


@pytest.mark.slow
def test_a_process_that_ends_leaves_its_last_words(tmp_path):
    with (
        Child(CHILD, [str(tmp_path)], tmp_path / "log") as child,
        pytest.raises(ChildError, match=r"(?s)ended with status 1.*no whole llama\.cpp"),
    ):
        child.ask("info")


@pytest.mark.slow
@pytest.mark.demo
def test_our_engine_answers_every_request_in_a_process_of_its_own(demo_model, tmp_path):
    path, tokens = str(demo_model), DECODE.tokens()
    with Child(OURS, [], tmp_path / "log") as ours:
        with pytest.raises(ChildError, match="no model is loaded"):
            ours.ask("prefill", tokens=tokens)
        ours.ask("load", path=path, n_threads=1, n_ctx=256, on_gpu=False)
        prefill = ours.ask("prefill", tokens=tokens)
        decode = ours.ask("decode", tokens=tokens)
        traced = ours.ask("tracing", tokens=tokens[:3])
        host = ours.ask("host_share", tokens=tokens)
        plans = ours.ask("planning", n_runs=1)
        memory = ours.ask("memory", path=path)
        pairs = ours.ask(
            "op_pairs", group="demo", folder=None, path=path, n_threads=1, n_pairs=2
        )  # fmt: skip

    assert prefill["seconds"] > 0
    assert decode["seconds"] == pytest.approx(sum(decode["each"]))
    assert len(decode["each"]) == len(tokens)
    assert (len(traced["on"]), len(traced["off"])) == (1, 1)
    assert all(0 < share < 1 for share in host["shares"])
    assert len(host["shares"]) == len(tokens) - 1
    assert plans["each"][0] > 0
    assert 0 < memory["file_pages"] <= demo_model.stat().st_size + 4096
    # q4_1, which CPU_REPACK has no layout for.
    assert memory["copied"] == 0
    assert memory["process"]["VmHWM"] > memory["planned"]["compute"] > 0
    assert {"MUL_MAT", "ROPE", "RMS_NORM", "SWIGLU"} <= {row["op"] for row in pairs["rows"]}
    assert all(min(row["seconds"][0]) > 0 for row in pairs["rows"])


@pytest.mark.slow
@pytest.mark.demo
def test_a_start_is_timed_to_its_first_token_and_to_its_end(demo_model, tmp_path):
    start = started(words_of(demo_model, ("-dev", "none")), tmp_path / "log")

    assert 0 < start.first_token_s <= start.end_s
    assert start.cpu_s > 0


def test_a_start_that_fails_is_no_measurement(tmp_path):
    with pytest.raises(ChildError, match="ended with status"):
        started(words_of(tmp_path / "no.gguf", ()), tmp_path / "log")
