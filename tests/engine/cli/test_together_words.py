"""What is said of several devices after a run."""

import dataclasses
import json

import pytest

from engine.cli.main import main
from engine.cli.output import NONE
from engine.cli.run_words import print_run, run_data
from engine.cli.together_words import print_together, together_data
from engine.core.devices import DeviceType
from engine.core.summary import DeviceTime, IdleTime, LinkTime, OverlapTime, Together
from tests.engine.cli.test_run_words import summary_of
from tests.engine.nano import nano

MS = 1_000_000
FOUND = Together(
    wall_ns=100 * MS,
    devices=(
        DeviceTime(
            "GPU0", DeviceType.GPU, 90 * MS,
            (
                IdleTime("copy", 1 * MS, "copy 0 from CPU, embd", 1 * MS),
                IdleTime("host", 6 * MS, "planning", 4 * MS),
                IdleTime("nothing", 3 * MS),
            ),
        ),
        DeviceTime("GPU1", DeviceType.GPU, 100 * MS, ()),
    ),
    links=(LinkTime("CPU", "GPU0", 1_200, 3 * 2**20, 2 * MS, 1_500.0, 20_000.0),),
    overlap_ns=45 * MS,
    overlaps=(OverlapTime(("GPU0", "GPU1"), 45 * MS),),
    n_copies=4,
    pipeline_obstacle="",
    n_steps=7,
    n_run_steps=7,
)  # fmt: skip


def printed(capsys, found=FOUND):
    print_together(found)
    return capsys.readouterr().out.splitlines()


def test_people_read_what_each_device_did_and_what_held_it_up(capsys):
    lines = printed(capsys)

    assert [line.split() for line in lines[2:4]] == [
        ["GPU0", "90.00", "90.0", "1.00", NONE, "6.00", "3.00", "host,", "4.00", "ms:", "planning"],
        ["GPU1", "100.00", "100.0", NONE, NONE, NONE, NONE, NONE],
    ]
    assert lines[1].split()[:3] == ["device", "busy", "ms"]


def test_people_read_what_links_moved_and_how_long_devices_worked_at_once(capsys):
    lines = printed(capsys)

    assert lines[6].split() == ["CPU", "GPU0", "1,200", "3.00", "2.00", "1.57", "1.5", "20.0"]
    assert lines[8:] == [
        "overlap: at least two devices computed for 45.00 ms, 45.0 % of 100.00 ms "
        "(GPU0 and GPU1 45.00 ms)",
        "pipeline on: up to 4 prompt graphs at once (--n-copies)",
    ]


def test_without_overlap_and_links_there_is_a_line_and_the_reason_without_a_pipeline(capsys):
    alone = dataclasses.replace(
        FOUND, links=(), overlap_ns=0, overlaps=(), n_copies=1, pipeline_obstacle="not every layer"
    )

    assert printed(capsys, alone)[4:] == [
        "",
        "overlap: at least two devices computed for 0.00 ms, 0.0 % of 100.00 ms",
        "pipeline off: not every layer",
    ]


def test_of_a_very_long_run_it_says_how_much_it_is_of(capsys):
    assert "all of this is of the last 7 of 1,200 steps" in printed(
        capsys, dataclasses.replace(FOUND, n_run_steps=1_200)
    )
    assert not [line for line in printed(capsys) if "of the last" in line]


def test_programs_read_the_same_of_a_run(capsys):
    summary = dataclasses.replace(summary_of([1, 2]), together=FOUND)

    data = json.loads(json.dumps(run_data(summary, "")))
    print_run(summary)

    assert data["together"] == json.loads(json.dumps(together_data(FOUND)))
    assert data["together"]["links"][0]["gb_per_s"] == pytest.approx(1.572864)
    assert data["together"]["links"][0]["n_transfers"] == 1_200
    assert data["together"]["devices"][0]["idle"][1] == {
        "cause": "host", "time_ns": 6 * MS, "worst": "planning", "worst_ns": 4 * MS
    }  # fmt: skip
    assert capsys.readouterr().out.endswith("(--n-copies)\n")


def test_a_run_on_one_device_says_nothing_of_several(cli):
    words = ("run", nano(), "-p", "Hello world", "-n", 2, "--devices", "cpu", "-c", 256)

    assert cli(*words, "--json").json["together"] is None
    assert "pipeline" not in cli(*words).out


@pytest.fixture
def two_devices(monkeypatch):
    """Return options for two OpenCL devices, parts of a CPU."""
    monkeypatch.setenv("SPLITSCOPE_OPENCL_PARTS", "2")
    return ("-dev", "opencl0,opencl1", "-c", 256, "--temp", 0)


@pytest.mark.gpu
@pytest.mark.slow
def test_a_trace_of_two_devices_has_the_overlap_that_the_summary_tells(
    cli, two_devices, demo_model, tmp_path, capsys
):
    if main(["devices", "--json"]) or capsys.readouterr().out.count('"OpenCL') < 2:
        pytest.skip("OpenCL: no CPU device that can be taken as two")
    trace = tmp_path / "t.json"
    words = ("trace", demo_model, "-p", "Hello world " * 90, "-n", 3, "-ub", 64, "-o", trace)

    run = cli(*words, *two_devices, "--json").json
    told = run["together"]

    metadata = json.loads(trace.read_text())["metadata"]
    assert metadata["overlap_ns"] == told["overlap_ns"] > 0
    assert (told["n_copies"], told["pipeline_obstacle"]) == (4, "")
    assert {device["name"] for device in told["devices"]} == {"OpenCL0", "OpenCL1", "CPU"}
    for device in told["devices"]:
        idle_ns = sum(idle["time_ns"] for idle in device["idle"])
        assert device["busy_ns"] + idle_ns == told["wall_ns"]
    links = {(link["source"], link["target"]): link["n_bytes"] for link in told["links"]}
    assert links["OpenCL0", "OpenCL1"] == sum(
        sum(copy["bytes"] for _ in copy["time_ns"])
        for copy in run["copies"]
        if copy["name"].startswith("l_out")
    )
    assert 0 < run["prefill_ns"] < told["wall_ns"]
