"""Markup, messages, status, the run panel's and the welcome page's words."""

import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from PySide6.QtCore import QSize

from app.shell.controller import ended_words
from app.shell.first_selection import first_node
from app.shell.help_window import manual_path
from app.shell.main_window import first_size
from app.shell.markup import joined, to_html, to_plain
from app.shell.messages import (
    died_message,
    dropped_message,
    exported_message,
    failed_message,
    model_message,
    recalled_message,
    waiting_message,
)
from app.shell.run_panel import DEMO_PROMPT, counts_text, speeds_text
from app.shell.status_text import file_title, measured_text, status_facts
from app.shell.welcome import absence_words, device_words, when_text
from app.shell.window_commands import command_line, llama_cpp_args, trace_format_of
from app.state.app_state import AppState, RunInfo
from app.theme.colours import LIGHT, lane_looks
from app.theme.job_row import count_text
from app.theme.text import SPACE, THIN
from engine.core.devices import DeviceType, Unavailable
from engine.core.options import OPTION_SPECS, Options, TensorOverride
from engine.core.summary import (
    DeviceSummary,
    ModelSummary,
    Progress,
    RunSummary,
    StopReason,
    TensorSummary,
)
from engine.service.messages import EngineDied, Exported, Failed, TraceFormat
from tests.app.models import paper_run

MODEL = ModelSummary(
    path="/models/SmolLM2-135M-Instruct.Q4_1.gguf", name="Smollm2", arch="llama",
    quantization="q4_1", file_bytes=98_362_432, weight_bytes=96_576_768, n_layers=30, n_embd=576,
    n_head=9, n_head_kv=3, n_vocab=49152, n_ctx_train=8192,
    tensors=(TensorSummary("token_embd.weight", "q8_0", (576, 49152), 30_081_024),),
    has_chat_template=True,
)  # fmt: skip


def plain(text: str) -> str:
    return text.replace(THIN, " ").replace(SPACE, " ")


# Markup.


def test_a_clause_with_a_comma_goes_on_with_the_sentence_before_it():
    assert joined(["A is B.", ", and C.", "D."]) == "A is B, and C. D."


def test_plain_text_has_no_markup_and_no_gap_where_a_badge_was():
    assert to_plain("**761** run on {0} GPU, `1 → 2` {more:+3}") == "761 run on GPU, 1 → 2 +3"


def test_html_escapes_names_and_shows_badges_of_known_devices_only(qapp):
    looks = lane_looks(LIGHT, paper_run.plans().prompt.devices)

    html = to_html("**<b>** {0} {7}", LIGHT, looks, 1.0)

    assert "<b>&lt;b&gt;</b>" in html
    assert html.count("<img") == 1


# Messages.


def test_a_truncated_file_is_a_message_with_its_next_step():
    problem = "x.gguf ends too early. It can be planned, not run.\nTensor 2 of 9.\nUsual cause: a"

    message = model_message(replace(MODEL, run_problem=problem))

    assert message.title == "x.gguf ends too early. It can be planned, not run."
    assert (message.sentence, message.hint) == ("Tensor 2 of 9.", "Usual cause: a")


def test_a_file_whose_text_is_read_otherwise_than_it_asks_says_so():
    message = model_message(replace(MODEL, text_faults=("It has no merges.", "It is broken.")))

    assert (message.title, message.sentence) == ("It has no merges.", "It is broken.")
    assert message.hint == "Plan and times do not depend on it."


def test_a_file_that_cannot_be_planned_says_that_its_tensors_are_listed():
    message = model_message(replace(MODEL, plan_problem="No graph for mamba."))

    assert message.title == "No graph for mamba."
    assert message.hint == "Its 1 tensors are listed below."


def test_a_sound_model_needs_no_message():
    assert model_message(MODEL) is None


def test_a_death_says_what_it_was_doing_what_is_kept_and_offers_one_button():
    died = EngineDied(-9, "while reading the prompt", "Killed")

    message = died_message(died, restarts=True, kept="Plan and options are unchanged.")

    assert message.title == "The engine stopped while reading the prompt and was restarted."
    assert message.sentence == "Plan and options are unchanged."
    assert message.actions == ("run",)
    assert "exit code -9" in message.text


def test_an_engine_that_never_was_ready_is_not_said_to_be_restarted():
    message = died_message(EngineDied(1), restarts=False, kept="")

    assert message.title == "The engine stopped and was not restarted."
    assert message.actions == ("restart_engine",)


def test_a_failure_keeps_the_engines_words():
    message = failed_message(Failed(1, "Cannot load x.", "It ends early.", "Fetch it.", "log"))

    assert message.text == "Cannot load x. It ends early.\nFetch it.\nlog"


def test_an_export_says_how_large_the_file_is():
    message = exported_message(Exported(1, Path("/tmp/run.pftrace"), 2 * 2**20))

    assert plain(message.title) == "The trace is written, 2.00 MiB."


# Status.


@pytest.fixture
def state(qapp):
    state = AppState()
    yield state
    state.deleteLater()


def test_without_a_model_the_status_says_so(state):
    assert status_facts(state) == ("No model open",)
    assert measured_text(state) == ""


def test_the_status_names_model_context_and_plan(state):
    state.set_model(MODEL)
    state.set_plans(replace(paper_run.plans(), plan_ns=21_000_000))

    facts = [plain(fact) for fact in status_facts(state)]

    assert facts == [
        "SmolLM2-135M-Instruct", "Q4_1 · llama · 30 layers · 92.10 MiB", "context 512",
        "plan 21.00 ms, exact", "936 nodes",
    ]  # fmt: skip
    assert measured_text(state) == "nothing measured yet"


def test_lost_records_are_counted(state):
    state.set_model(MODEL)
    state.set_trace(replace(paper_run.run_on_paper(paper_run.plans(), 1), lost=3))

    assert measured_text(state) == "3 lost"


def test_a_file_without_its_type_in_the_name_keeps_its_name():
    assert file_title(replace(MODEL, path="/m/tiny.gguf")) == "tiny"


# Panels.


def test_the_demo_prompt_has_enough_words_for_a_prompt_batch():
    assert len(DEMO_PROMPT.split()) >= 64


def test_speeds_that_were_not_measured_are_not_shown():
    assert speeds_text(RunInfo()) == ""
    assert plain(speeds_text(RunInfo(prefill_tokens_per_s=168.5))) == "Prompt 168.5 tok/s"


def test_tokens_are_counted_against_those_asked_for():
    assert counts_text(RunInfo(n_tokens=12, n_predict=48)) == "12 of 48 tokens"
    assert counts_text(RunInfo()) == ""


def test_large_totals_are_bytes_and_small_ones_are_things():
    assert plain(count_text(Progress("a", 2**20, 2**22))) == "1.00 MiB of 4.00 MiB"
    assert count_text(Progress("kernels", 3, 40)) == "3 of 40"
    assert count_text(Progress("a", 0, 0)) == ""


def test_a_software_device_says_so():
    device = DeviceSummary(
        "OpenCL0", "PoCL 3.1", DeviceType.GPU, 2**30, 2**30, "software, shares host memory"
    )

    assert plain(device_words(device)) == "PoCL 3.1, software, shares host memory, 1.0 GiB free"


@pytest.mark.parametrize(
    ("iso", "words"),
    [
        ("2026-11-29T12:41+00:00", "today 12:41"),
        ("2026-11-24T12:41+00:00", "Tuesday"),
        ("2026-11-02T12:41+00:00", "2 Nov"),
        ("no date", ""),
    ],
)
def test_when_something_was_is_told_as_people_do(iso, words):
    assert when_text(iso, datetime(2026, 11, 29, 20, tzinfo=UTC)) == words


def test_the_command_can_be_pasted_into_a_shell():
    args = Options(n_gpu_layers=2, op_offload=False).command_args()

    assert command_line("/my models/a.gguf", args) == (
        "llama-cli -ngl 2 --no-op-offload -m '/my models/a.gguf'"
    )


def test_the_command_holds_nothing_that_llama_cpp_does_not_know():
    options = Options(
        layer_rule="output-last",
        blas="auto",
        tensor_overrides=(
            TensorOverride(r"blk\.(1|2)\.ffn", "CPU"),
            TensorOverride("attn", "GPU0"),
        ),
        tensor_split=(3.0, 1.0),
        n_cpu_moe=2,
        offload_kqv=False,
    )

    assert command_line("a.gguf", llama_cpp_args(options)) == (
        r"llama-cli -ts 3,1 -ot 'blk\.(1|2)\.ffn=CPU,attn=GPU0' -ncmoe 2 -nkvo -m a.gguf"
    )


def test_options_of_last_time_are_said_unless_the_toolbar_shows_them():
    assert recalled_message(None) is None
    assert recalled_message(Options(n_gpu_layers=3, n_ctx=512, op_offload=False)) is None

    message = recalled_message(Options(n_gpu_layers=3, mmap=False))
    assert message.sentence == "-ngl 3 --no-mmap"
    assert message.actions == ("show_options", "reset_options")


# The manual.


def manual_pages():
    return sorted(manual_path().parent.glob("*.md"))


def test_the_manual_names_every_option_with_its_flag():
    rows = {
        line.split("|")[1].strip()
        for line in (manual_path().with_name("options.md")).read_text("utf-8").splitlines()
        if line.startswith("| -")
    }

    assert rows == {spec.flags[0] for spec in OPTION_SPECS}


def test_every_page_of_the_manual_is_reached_and_every_link_leads_somewhere():
    linked = set()
    for page in manual_pages():
        for target in re.findall(r"\]\(([^)]+)\)", page.read_text("utf-8")):
            assert page.with_name(target).is_file(), target
            linked.add(target)

    assert {page.name for page in manual_pages()} <= linked | {"index.md"}


# First selection.


def test_the_first_cpu_operation_of_a_layer_is_selected():
    plan = paper_run.plans().prompt

    node_id = first_node(plan)

    assert plan.devices[int(plan.backend[plan.slot(node_id)])].name == "CPU"
    assert int(plan.layer[node_id]) == 0
    assert not plan.is_view_op[plan.slot(node_id)]


def test_without_a_cpu_operation_in_a_layer_the_first_computed_one_is_selected():
    plan = paper_run.small_plans().prompt

    assert first_node(plan) == 0


def test_why_a_device_is_not_here_is_two_sentences():
    missing = Unavailable("OpenCL", "no OpenCL platform found", "Install a driver.")

    assert absence_words(missing) == "No OpenCL platform found. Install a driver."


def test_a_file_that_waits_says_until_when():
    message = waiting_message("/models/x.gguf", "the run has ended")

    assert message.text == (
        "x.gguf waits. It is opened when the run has ended.\nStop ends that now."
    )


def test_one_dropped_file_is_no_problem_a_folder_and_two_files_are(tmp_path):
    file = tmp_path / "x.gguf"

    assert dropped_message([str(file)]) is None
    assert dropped_message([str(file), str(file)]).title == "2 files were dropped."
    assert dropped_message([""]).title == "What was dropped is no file of this computer."
    assert dropped_message([str(tmp_path)]).title == f"{tmp_path.name} is a folder."


@pytest.mark.parametrize(
    ("name", "trace_format"),
    [
        ("run.json", TraceFormat.CHROME),
        ("RUN.JSON", TraceFormat.CHROME),
        ("run.pftrace", TraceFormat.PERFETTO),
        ("run", TraceFormat.PERFETTO),
    ],
)
def test_the_ending_of_a_trace_decides_its_format(name, trace_format):
    assert trace_format_of(Path(name)) is trace_format


def test_the_end_of_a_run_has_its_own_time_and_says_whether_it_was_stopped():
    ended_at = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
    run = RunInfo(summary=run_summary(StopReason.LENGTH), ended_at=ended_at)
    stopped = replace(run, summary=run_summary(StopReason.STOPPED))

    assert ended_words(run) == "run finished 07:08:09"
    assert ended_words(stopped) == "run stopped 07:08:09"
    assert ended_words(RunInfo()) == ""


def run_summary(reason):
    return RunSummary("hello", (1,), (3,), "x", reason, 1.0, 2.0, 5, (4,), 1, 2, (), ())


@pytest.mark.parametrize(
    ("screen", "size"),
    [((1920, 1080), (1280, 800)), ((1280, 800), (1264, 752)), ((800, 600), (1024, 640))],
)
def test_the_first_window_fits_on_the_screen_with_its_frame(screen, size):
    assert first_size(QSize(*screen)).toTuple() == size
