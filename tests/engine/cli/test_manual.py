"""The commands of the manual and of the README: all are understood, those on devices work."""

import os
import re
import shlex
from pathlib import Path

import pytest

from engine import paths
from engine.cli.main import parse
from engine.core.options import Options
from engine.gguf.reader import open_gguf
from engine.model.placement import pipeline_obstacle, place_model
from engine.model.planning import make_planner
from tests.engine.nano import nano
from tests.engine.paper import parse_virtual

MANUAL = paths.resources_dir() / "manual"
README = Path(__file__).parents[3] / "README.md"
PAGES = [README, *sorted(MANUAL.glob("*.md"))]
LINE = re.compile(r"^    (?P<env>(?:\w+=\S+ )*)\S*python -m engine (?P<words>.+)$", re.MULTILINE)
SEVERAL = "several-devices.md"


def commands(page):
    """What a page has people type: environment, and words; what it is for stands two spaces on."""
    found = []
    for match in LINE.finditer(page.read_text("utf-8")):
        env = dict(item.split("=") for item in match["env"].split())
        found.append((env, shlex.split(match["words"].split("  ")[0], comments=True)))
    return found


ALL = [(page.name, *command) for page in PAGES for command in commands(page)]
ON_PAPER = [words for page, env, words in ALL if page == SEVERAL and not env]
ON_PARTS = [(env, words) for page, env, words in ALL if page == SEVERAL and env]


@pytest.mark.parametrize(("page", "env", "words"), ALL, ids=lambda value: str(value)[:60])
def test_every_command_of_the_manual_is_understood(page, env, words):
    args = parse(words)

    assert callable(args.execute)


def test_the_page_on_several_devices_has_commands_of_both_kinds():
    modes = {words[words.index("-sm") + 1] for words in ON_PAPER if "-sm" in words}

    assert modes == {"none", "row", "tensor"}
    assert {words[0] for words in ON_PAPER} == {"plan", "trace"}
    assert {words[0] for _, words in ON_PARTS} == {"devices", "run", "trace"}


@pytest.fixture
def nano_as_demo(monkeypatch, tmp_path):
    """Let the demo be a model that is small and always there, and files be written elsewhere."""
    monkeypatch.setattr("engine.planning.fetch_demo", lambda *args: nano())
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("words", ON_PAPER, ids=" ".join)
def test_what_it_shows_on_paper_works(cli, nano_as_demo, words):
    done = cli(*words)

    assert (done.code, done.err) == (0, "")
    assert "pipeline" in done.out


@pytest.mark.gpu
@pytest.mark.parametrize(("env", "words"), ON_PARTS, ids=lambda value: str(value)[:80])
def test_what_it_shows_on_parts_of_a_processor_works(cli, nano_as_demo, monkeypatch, env, words):
    if not (os.cpu_count() or 1) > 1:
        pytest.skip("one core: it has no parts")
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    names = [device["name"] for device in cli("devices", "--json").json["devices"]]
    if "OpenCL1" not in names:
        pytest.skip("OpenCL: no processor that can be parted")

    done = cli(*words)

    assert done.code == 0, done.err
    assert words[0] == "devices" or "OpenCL1" in done.out


PAIR = [parse_virtual(f"{name}:gpu:8000:async=1,events=1,split=1") for name in "AB"]
CPU = parse_virtual("CPU:cpu:8000")
SLOW = parse_virtual("C:gpu:8000")


@pytest.mark.parametrize(
    ("devices", "options"),
    [
        (PAIR[:1], {}),
        (PAIR, {"n_gpu_layers": 1}),
        (PAIR, {"split_mode": "row"}),
        (PAIR, {"split_mode": "tensor"}),
        (PAIR, {"split_mode": "tensor", "n_gpu_layers": 1}),
        (PAIR, {"offload_kqv": False}),
        (PAIR, {"cpu_moe": True}),
        ([*PAIR, SLOW], {}),
        (PAIR, {"n_copies": 1}),
    ],
)
def test_each_reason_why_there_is_no_pipeline_is_in_the_page(devices, options):
    """As a plan says it, but for the option behind it and the device's name."""
    page = (MANUAL / SEVERAL).read_text("utf-8")
    table = page[page.index("| it is off |") : page.index("What it costs in memory")]
    asked = Options(**options)

    said = pipeline_obstacle(place_model([*devices, CPU], asked, n_layer=4), asked)

    words = re.sub(r" \(.*\)$", "", said).replace("C does", "a device does")
    assert said
    assert f"| {words} |" in table


def test_the_reason_that_only_a_run_finds_is_in_the_page_too():
    with open_gguf(nano()) as file:
        planner = make_planner(file, [*PAIR, CPU], Options(n_ctx=256)).without_pipeline()

        words = planner.pipeline_obstacle

    assert f"| {words} |" in (MANUAL / SEVERAL).read_text("utf-8")
