"""The report in both forms, bars, and the line for programs."""

import json
import re

from tests.bench import rendering
from tests.bench.bars import BARS, Bar, bar_row, bars_table
from tests.bench.quick import DECODE, N_PAIRS, PREFILL, last_line, told
from tests.bench.race import Lap, Race
from tests.bench.results import Column, Part, Table
from tests.bench.stats import ratio

FACTS = {"processor": "a fast one", "date": "2026-01-01"}
PART = Part(
    Table(
        "Speed",
        (Column("model"), Column("threads"), Column("ratio", 3)),
        (("demo", 2, 1.23456), ("a|b", 1, None)),
        ("What it means.",),
    ),
    figures={"decode 64 ratio demo 2": 1.23456},
    data={"demo 2": {"seconds": (0.5, 0.25)}},
    variations={"demo 2: read 2": 0.1},
)
RESTLESS = Part(Table("Ops", (), ()), variations={"ops 2: f32 2": 0.4})


def test_a_table_is_told_with_its_notes():
    assert rendering.table_text(PART.table) == (
        "## Speed\n\n"
        "| model | threads | ratio |\n"
        "| --- | --- | --- |\n"
        "| demo | 2 | 1.235 |\n"
        "| a\\|b | 1 | - |\n\n"
        "What it means."
    )


def test_a_table_without_rows_is_its_notes():
    table = Table("OpenCL", (Column("model"),), (), ("There is no OpenCL device here.",))

    assert rendering.table_text(table) == "## OpenCL\n\nThere is no OpenCL device here."


def test_a_report_begins_with_the_machine_and_whether_it_counts():
    text = rendering.as_markdown(FACTS, [PART])

    assert text.startswith(
        "# Splitscope: benchmark\n\n- processor: a fast one\n- date: 2026-01-01\n\n"
        "This run is valid.\n\n## Speed\n"
    )


def test_a_run_whose_ceilings_moved_is_invalid_and_not_failed():
    text = rendering.as_markdown(FACTS, [PART, RESTLESS])

    assert "This run is invalid, not failed" in text
    assert "- ops 2: f32 2 varies by 40%" in text
    assert not rendering.is_valid([PART, RESTLESS])


def test_both_forms_are_written_and_the_one_for_programs_has_every_measurement(tmp_path):
    markdown, data = rendering.write(tmp_path / "new", FACTS, [PART])

    told_data = json.loads(data.read_text())
    assert markdown.read_text() == rendering.as_markdown(FACTS, [PART])
    assert told_data["facts"] == FACTS
    assert told_data["valid"] is True
    assert told_data["parts"][0]["data"] == {"demo 2": {"seconds": [0.5, 0.25]}}
    assert told_data["parts"][0]["table"]["rows"][0] == ["demo", 2, 1.23456]


def test_a_bar_is_held_against_the_figure_that_is_farthest_from_it():
    figures = {"decode a 1": 1.5, "decode a 2": 0.9, "prefill a 2": 0.1}

    assert bar_row(Bar("decode", "decode .*", 1.0), figures) == (
        "decode", ">= 1", 0.9, "decode a 2", "not met",
    )  # fmt: skip
    assert bar_row(Bar("most", "decode .*", 1.5, is_least=False), figures) == (
        "most", "<= 1.5", 1.5, "decode a 1", "met",
    )  # fmt: skip


def test_a_bar_without_a_figure_is_not_measured():
    assert bar_row(Bar("decode", "decode .*", 1.0), {})[-1] == "not measured"


def test_no_bar_takes_the_figures_of_another_model():
    gemma = next(bar for bar in BARS if bar.words.endswith("Gemma"))

    assert bar_row(gemma, {"decode 64 ratio qwen 2": 0.5})[-1] == "not measured"
    assert len(bars_table({}).table.rows) == len(BARS)


def test_the_last_line_has_three_ratios_of_three_decimals():
    line = last_line(ratio([1.0], [1.23449]), ratio([2.0], [1.0]), ratio([1.0], [0.9996]))

    assert line == "decode_ratio=1.234 prefill_ratio=0.500 overhead_ratio=1.000"


def test_what_was_not_measured_is_said_in_the_last_line():
    line = last_line(None, None, ratio([1.0], [1.0]))

    assert line == "decode_ratio=n/a prefill_ratio=n/a overhead_ratio=1.000"


def quick_race(n_sides: int, read: list[float]) -> Race:
    read = read * N_PAIRS if len(read) == 1 else read
    laps = tuple(tuple(Lap(float(side + 1)) for _ in read) for side in range(n_sides))
    return Race({DECODE: laps, PREFILL: laps}, tuple({"read 2": x} for x in read))


def test_quick_ends_with_the_line_and_the_status_of_a_valid_run(capsys):
    status = told(quick_race(2, [10.0]), ratio([1.0], [1.0]))

    lines = capsys.readouterr().out.splitlines()
    assert status == 0
    assert lines[-1] == "decode_ratio=2.000 prefill_ratio=2.000 overhead_ratio=1.000"
    assert re.search(r"^decode 32: ours 32\.0 .*, llama\.cpp 16\.0 ", lines[0])


def test_quick_says_when_the_machine_was_too_restless(capsys):
    status = told(quick_race(2, [10.0, 20.0] * N_PAIRS), ratio([1.0], [1.0]))

    assert status == 0
    assert "invalid, not failed: the ceiling read 2 varies by" in capsys.readouterr().out


def test_quick_says_when_the_pairs_did_not_all_come_in_time(capsys):
    status = told(quick_race(2, [10.0, 10.0, 10.0]), ratio([1.0], [1.0]))

    assert status == 0
    assert "invalid, not failed: only 3 of 9 pairs came within 25 s" in capsys.readouterr().out


def test_quick_without_llama_cpp_tells_ours_alone_and_does_not_end_well(capsys):
    status = told(quick_race(1, [10.0]), ratio([1.0], [1.0]))

    lines = capsys.readouterr().out.splitlines()
    assert status == 1
    assert lines[0] == "decode 32: ours 32.0 (32.0 to 32.0) tokens/s"
    assert lines[-1] == "decode_ratio=n/a prefill_ratio=n/a overhead_ratio=1.000"


def test_verdicts_of_an_invalid_run_say_so():
    sound, restless = bars_table({}), bars_table({}, is_valid=False)

    assert not any("invalid" in note for note in sound.table.notes)
    assert any("the run is invalid" in note for note in restless.table.notes)
