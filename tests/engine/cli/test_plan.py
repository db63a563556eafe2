"""plan, splits, memory and why: what they print, on real devices and on paper."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from engine.cli.plan_words import mapped_lines
from engine.core.devices import CPU_BUFT, mapped
from engine.core.plan import Batch, MemoryKind, MemoryLedger, MemoryRow
from tests.engine.encoder import encoder
from tests.engine.nano import nano, nano_with

PAPER = ("--virtual", "GPU0:gpu:8192:preset=cuda", "--virtual", "CPU:cpu:16384")


def test_plan_gives_nodes_splits_and_memory_of_both_batches(cli):
    plans = cli("plan", nano(), *PAPER, "-ngl", 2, "--json").json

    assert set(plans) == {batch.value for batch in Batch}
    for plan in plans.values():
        node, split = plan["nodes"][0], plan["splits"][-1]
        assert {"id", "op", "name", "ne", "backend", "cause", "pass"} <= set(node)
        assert {"id", "backend", "start", "stop", "inputs"} <= set(split)
        assert all({"name", "bytes"} == set(item) for item in split["inputs"])
        assert all(
            set(kinds) == {"model", "kv", "state", "compute", "output"}
            for kinds in plan["memory"].values()
        )


def test_splits_cover_the_nodes_in_order_and_name_their_devices(cli):
    plan = cli("plan", nano(), *PAPER, "-ngl", 2, "--json").json["prompt"]

    stops = [split["stop"] for split in plan["splits"]]
    assert [split["start"] for split in plan["splits"]] == [0, *stops[:-1]]
    assert stops[-1] == len(plan["nodes"])
    for split in plan["splits"]:
        inside = plan["nodes"][split["start"] : split["stop"]]
        assert {node["split"] for node in inside} == {split["id"]}


def test_every_spelling_of_llama_cpp_is_taken(cli):
    done = cli(
        "plan", "-m", nano(), "-ngl", "all", "-fa", "-c", 300, "-b", 128, "-ub", 64, "-t", 2,
        "-dev", "GPU0", "-s", -1, "--temp", 0, "--top-k", 5, "--top-p", 0.5, "-sm", "layer",
        "--no-op-offload", *PAPER, "--json",
    )  # fmt: skip

    prompt = done.json["prompt"]
    assert (prompt["n_tokens"], prompt["n_kv"], prompt["flash_attn"]) == (64, 512, True)


def test_a_backend_has_the_name_of_its_stream_as_in_real_logs(cli):
    rpc = "RPC0:gpu:24105:preset=rpc,buft=RPC0[127.0.0.1:50052],offload=32"

    plan = cli("plan", nano(), "--virtual", rpc, "-ngl", 2, "--json").json["prompt"]

    names = {"RPC0[127.0.0.1:50052]", "CPU"}
    assert {node["backend"] for node in plan["nodes"]} == names
    assert {split["backend"] for split in plan["splits"]} == names


def test_joined_devices_are_one_whose_members_are_told(cli):
    options = (nano(), *PAPER, "--virtual", "GPU1:gpu:8192", "-sm", "tensor")

    plan = cli("plan", *options, "--json").json["prompt"]
    told = cli("plan", *options)

    assert {node["backend"] for node in plan["nodes"]} == {"Meta(GPU0,GPU1)", "CPU"}
    roles = {use["device"]: use["role"] for use in plan["devices"]}
    assert roles == {"GPU0": "layers", "GPU1": "layers", "CPU": "beside"}
    assert "Meta(): GPU0, GPU1 as one device" in told.out
    assert told.err == ""


def test_what_joined_devices_hold_stands_beside_what_was_asked_for(cli):
    options = (nano(), *PAPER, "--virtual", "GPU1:gpu:8192", "-sm", "tensor", "-ts", "3,1")

    plan = cli("plan", *options, "--json").json["prompt"]
    memory = cli("memory", *options, "--json").json
    told = cli("memory", *options).out

    first, second = plan["shares"]
    assert (first["device"], first["asked"], second["asked"]) == ("GPU0", 0.75, 0.25)
    assert first["achieved"] + second["achieved"] == pytest.approx(1, abs=1e-5)
    assert 0.6 < first["achieved"] < 0.8
    # With the results counts what members exchange.
    assert first["result_bytes"] == second["result_bytes"] > memory["Meta()"]["compute"] > 0
    assert memory["shares"] == plan["shares"]
    rows = [line.split() for line in told.splitlines()]
    assert ["GPU0", "75.0%", f"{first['achieved']:.1%}"] in [row[:3] for row in rows]


def test_a_member_that_the_model_does_not_fit_is_named_whatever_the_others_have(cli):
    """Results are on each of them."""
    small = ("--virtual", "GPU0:gpu:8192", "--virtual", "GPU1:gpu:1", "-sm", "tensor", "-ts", "1,1")

    told = cli("memory", nano(), *small).out
    fits = cli("memory", nano(), *small, "--json").json["fits"]

    assert "Does not fit: GPU1 needs " in told
    assert "Does not fit: Meta()" not in told
    assert [fits[name]["fits"] for name in ("GPU0", "GPU1", "Meta()")] == [True, False, False]


@pytest.mark.parametrize("name", ["--devices", "--device", "-dev"])
@pytest.mark.parametrize("value", ["cpu", "none", "CPU"])
def test_the_cpu_is_always_there_and_may_be_alone(cli, name, value):
    plan = cli("plan", nano(), *PAPER, name, value, "--json").json["prompt"]

    assert {node["backend"] for node in plan["nodes"]} == {"CPU"}


def test_every_key_of_a_device_on_paper_is_taken(cli):
    keys = (
        "preset=plain,buft=B0,align=256,max=1000000000,host=0,async=1,events=1,cpyasync=1,"
        "hostbuft=B0_Host,mmap=0,offload=32,ops=*,noops=SOFT_MAX"
    )

    memory = cli("memory", nano(), "--virtual", f"A:gpu:100:{keys}", "--json").json

    assert {"B0", "B0_Host"} <= set(memory)


@pytest.mark.parametrize(
    ("device", "said"),
    [
        ("A:gpu", "needs a name, a type and free MiB"),
        ("A:tpu:5", "The type is tpu"),
        ("A:gpu:5:colour=red", "It has colour=red; allowed is key=value"),
        ("A:gpu:5:preset=cudo", "The preset is cudo"),
    ],
)
def test_a_device_on_paper_that_cannot_be_read_is_named(cli, device, said):
    done = cli("plan", nano(), "--virtual", device)

    assert done.code == 1
    assert said in done.err


def test_a_header_without_data_is_planned(cli, tmp_path):
    whole, header = nano(), nano_with(tmp_path, whole=False)

    done = [cli("plan", path, *PAPER, "--json") for path in (whole, header)]
    problems = [{plan.pop("problem", "") for plan in one.json.values()} for one in done]

    assert problems[0] == {""}
    assert "It can be planned, not run." in problems[1].pop()
    assert "It can be planned, not run." in done[1].err


@pytest.mark.parametrize("command", ["plan", "splits", "memory", "why"])
def test_a_file_that_ends_early_is_planned_and_said_so(cli, tmp_path, command):
    path = nano_with(tmp_path, whole=False)
    node = ("#1",) if command == "why" else ()

    done = cli(command, path, *node, *PAPER)

    assert done.code == 0
    assert done.err.startswith("nano-changed.gguf ends too early. It can be planned, not run.\n")


def test_a_header_has_the_plan_of_its_whole_file(cli, tmp_path):
    paths = nano(), nano_with(tmp_path, whole=False)
    whole, header = (cli("plan", path, *PAPER, "--json").json for path in paths)

    for batch, plan in header.items():
        del plan["problem"]
        assert plan == whole[batch]


def test_people_get_a_headline_splits_and_the_ledger(cli):
    out = cli("plan", nano(), *PAPER, "-ngl", 2).out

    assert out.startswith("99 nodes: ")
    assert "begins because" in out
    assert "sum MiB" in out


def test_what_does_not_fit_is_said(cli):
    out = cli("memory", nano(), "--virtual", "GPU0:gpu:1").out

    assert "Does not fit: GPU0 needs" in out


def test_what_does_not_fit_is_in_the_headline_with_layers_that_do(cli):
    options = ("--virtual", "GPU0:gpu:1", "-c", 256)
    lines = cli("plan", nano(), *options).out.splitlines()

    assert lines[1].startswith("Does not fit: GPU0 needs")
    found = re.fullmatch(r"Try: -ngl (\d+) fits\.", lines[2])
    assert lines[3].startswith("-ngl auto takes every layer")
    n_layers = int(found[1])
    for n, fits in ((n_layers, True), (n_layers + 1, False)):
        plan = cli("plan", nano(), *options, "-ngl", n, "--json").json["prompt"]
        assert plan["fits"]["GPU0"]["fits"] is fits


def test_the_ledger_says_what_of_a_mapped_file_a_run_gives_back(cli):
    out = cli("memory", nano(), "--virtual", "GPU0:gpu:8192", "-ngl", 1).out

    assert "What GPU0 holds is copied from the file" in out
    assert re.search(r"up to \d+\.\d+ MiB of CPU_Mapped\.$", out, re.MULTILINE)


def test_the_ledger_says_that_two_devices_map_one_file():
    types = [mapped(CPU_BUFT), mapped(replace(CPU_BUFT, name="B0"))]
    rows = tuple(MemoryRow(buft, "A", MemoryKind.MODEL, 1 << 20) for buft in types)
    plans = SimpleNamespace(memory=MemoryLedger(rows))

    (line,) = mapped_lines(plans)

    assert line.startswith("CPU_Mapped and B0_Mapped: parts of the file that both count")


def test_memory_as_json_says_what_fits(cli):
    fits = cli("memory", nano(), "--virtual", "GPU0:gpu:1", "--json").json["fits"]

    assert set(fits) == {"GPU0", "CPU"}
    assert (fits["GPU0"]["free"], fits["GPU0"]["fits"]) == (2**20, False)
    assert fits["GPU0"]["needed"] > 2**20
    assert fits["CPU"]["fits"] is True


def test_the_headline_is_that_of_the_batch_that_is_shown(cli):
    out = cli("plan", nano(), *PAPER, "--batch", "token", "-c", 8).out

    assert "planned for 1 token at full context" in out
    assert "copied per token" in out
    assert "context 256 (8 asked, padded to blocks of 256)" in out


def test_a_cpu_on_paper_may_be_the_only_device_of_the_demo(cli, monkeypatch):
    monkeypatch.setattr("engine.planning.fetch_demo", lambda *args: nano())

    plan = cli("plan", "demo", "--virtual", "A:cpu:8000", "--json").json["prompt"]

    assert set(plan["fits"]) == {"A"}


@pytest.mark.parametrize("lines", [["CPU:gpu:100"], ["A:gpu:100", "a:gpu:100"]], ids=" ".join)
def test_two_devices_of_one_name_are_refused(cli, lines):
    options = [word for line in lines for word in ("--virtual", line)]

    done = cli("plan", nano(), *options)

    assert done.code == 1
    assert done.err.startswith("Two devices are called")


def test_memory_of_one_name_is_told_apart_by_device_unless_it_is_the_hosts(cli):
    devices = (
        "--virtual", "A:gpu:8192:buft=VRAM,hostbuft=PINNED,mmap=0",
        "--virtual", "B:gpu:8192:buft=VRAM,align=256,hostbuft=PINNED,mmap=0",
    )  # fmt: skip
    memory = cli("memory", nano(), *devices, "-ngl", 2, "--json").json

    assert {"VRAM (A)", "VRAM (B)", "PINNED"} <= set(memory)
    assert "VRAM" not in memory
    assert all(sum(memory[name].values()) for name in ("VRAM (A)", "VRAM (B)"))


def test_splits_of_one_batch_are_those_of_the_plan(cli):
    plan = cli("plan", nano(), *PAPER, "-ngl", 2, "--json").json

    for batch in Batch:
        splits = cli("splits", nano(), *PAPER, "-ngl", 2, "--batch", batch.value, "--json").json
        assert splits == plan[batch.value]["splits"]


# Several devices.

A = "A:gpu:8192:async=1,events=1"
B = "B:gpu:8192:async=1,events=1"


def several(*devices):
    return [word for device in devices for word in ("--virtual", device)]


def test_a_pipeline_is_said_with_how_many_graphs_it_has(cli):
    for given, n_copies in (((), 4), (("--n-copies", 2), 2)):
        data = cli("plan", nano(), *several(A, B), *given, "--json").json
        text = cli("plan", nano(), *several(A, B), *given).out

        for plan in data.values():
            assert (plan["n_copies"], plan["pipeline_obstacle"]) == (n_copies, "")
        assert f"pipeline on: up to {n_copies} prompt graphs at once (--n-copies)" in text


@pytest.mark.parametrize(
    ("devices", "given", "reason"),
    [
        ((A,), (), "the model uses fewer than two devices"),
        ((A, B), ("-ngl", 1), "not every layer is on a device (-ngl)"),
        ((A, B), ("-sm", "none"), "the model uses fewer than two devices (-sm none)"),
        ((A, B), ("-sm", "tensor"), "every layer is on all devices (-sm tensor)"),
        ((A, B), ("-nkvo",), "keys and values are in the CPU's memory (-nkvo)"),
        ((A, B), ("-ot", "z=CPU"), "weights were given other memory (-ot, --cpu-moe, --n-cpu-moe)"),
        ((A, "C:gpu:8192"), (), "C does not compute asynchronously, or has no events"),
        ((A, B, "BLAS:accel:0"), (), "BLAS does not compute asynchronously, or has no events"),
        ((A, B), ("--n-copies", 1), "only one graph at a time was asked for (--n-copies 1)"),
    ],
)  # fmt: skip
def test_why_there_is_no_pipeline_is_said(cli, devices, given, reason):
    data = cli("plan", nano(), *several(*devices), *given, "--json").json
    text = cli("plan", nano(), *several(*devices), *given).out

    for plan in data.values():
        assert (plan["n_copies"], plan["pipeline_obstacle"]) == (1, reason)
    assert f"pipeline off: {reason}\n" in text


def test_devices_that_a_model_does_not_use_are_said_with_the_reason(cli):
    devices = several(A, B, "I:igpu:1000")

    data = cli("plan", nano(), *devices, "-sm", "none", "-mg", 1, "--json").json["prompt"]
    text = cli("plan", nano(), *devices, "-sm", "none", "-mg", 1).out

    assert [tuple(use.values()) for use in data["devices"]] == [
        ("A", "left out", "all layers are for B (-sm none)"),
        ("B", "layers", ""),
        ("I", "left out", "an integrated GPU beside the GPU A"),
        ("CPU", "beside", "the CPU takes what no other device does"),
    ]
    assert "A is left out: all layers are for B (-sm none)\n" in text
    assert "I is left out: an integrated GPU beside the GPU A\n" in text
    assert "CPU is left out" not in text


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("-ts", "1,1,1"), "-ts has 3 shares for 2 devices. In order they are for A, B."),
        (("-ts", "1"), "-ts has 1 share for 2 devices. B would get nothing."),
        (("-ts", "0,0"), "-ts gives no device a share."),
        (("-ts", "3,-1"), "-ts cannot be 3,-1."),
        (("-ts", "nan,1"), "-ts cannot be nan,1."),
        (("-sm", "none", "-mg", 2), "There is no GPU number 2. They are counted from 0: 0 is A"),
        (("-mg", -2), "-mg cannot be -2."),
        (("--n-copies", 0), "--n-copies cannot be 0."),
        (("--n-copies", 17), "--n-copies cannot be 17."),
        (("-dev", "A,C"), "There is no device C. This machine has A, B, CPU."),
    ],
)
def test_what_does_not_go_with_the_devices_is_refused(cli, given, said):
    done = cli("plan", nano(), *several(A, B), *given)

    assert done.code == 1
    assert " ".join(done.err.split()).startswith(said)
    assert "Traceback" not in done.err


# --- why ------------------------------------------------------------------------------------


def test_why_takes_an_index_a_name_and_a_name_with_its_occurrence(cli):
    for node in ("#1", "norm-0@0"):
        found = cli("why", nano(), node, *PAPER, "--json").json
        assert (found["title"], found["node_id"]) == ("norm-0", 1)
    second = cli("why", nano(), "norm-0@1", *PAPER, "--json").json
    assert (second["title"], second["node_id"] > 1) == ("norm-0", True)


def test_why_says_where_a_weight_is(cli):
    out = cli("why", nano(), "blk.0.attn_q.weight", *PAPER, "-ngl", 0).out

    assert "On the CPU because its weight is there" in out


def test_why_of_a_weight_says_whose_layer_it_is_and_which_memories_were_tried(cli):
    done = cli("why", nano(), "blk.1.attn_q.weight", *PAPER, "--json").json
    text = cli("why", nano(), "blk.1.attn_q.weight", *PAPER).out

    (place,) = done["places"]
    assert (place["layer"], place["device"], place["buffer_type"]) == ("layer 1", "GPU0", "GPU0")
    assert place["tried"] == [{"device": "GPU0", "buffer_type": "GPU0", "suits": True}]
    assert place["sentence"] == (
        "In GPU0 memory because layer 1 is on GPU0, and GPU0 suits: "
        "GPU0 runs MUL_MAT with f32 weights from there."
    )
    assert place["sentence"] in text


def test_why_of_a_weight_on_the_cpu_says_what_did_not_suit_and_that_it_is_mapped(cli):
    found = cli("why", nano(), "blk.1.attn_q.weight", *PAPER, "-ngl", 0, "--json").json

    (place,) = found["places"]
    assert place["buffer_type"] == "CPU_Mapped"
    assert [memory["suits"] for memory in place["tried"]][-1] is True
    assert place["sentence"].endswith("The file is mapped: it is used in place.")


def test_why_of_a_weight_names_the_override_that_decided(cli):
    found = cli("why", nano(), "blk.1.attn_q.weight", *PAPER, "-ot", "attn_q=CPU", "--json").json

    (place,) = found["places"]
    assert place["override"] == "attn_q=CPU"
    assert "because the override attn_q=CPU says so; layer 1 is on GPU0." in place["sentence"]


def test_why_of_a_tied_weight_tells_of_both_its_roles(cli, tmp_path):
    tied = nano_with(tmp_path, drop=["output.weight"])

    places = cli("why", tied, "token_embd.weight", *PAPER, "--json").json["places"]

    assert [(p["role"], p["layer"], p["buffer_type"]) for p in places] == [
        ("token_embd.weight", "the input layer", "CPU_Mapped"),
        ("output.weight", "the output layer", "GPU0"),
    ]


def test_why_of_a_weight_answers_without_a_graph_and_other_names_are_told_of(cli, tmp_path):
    storm = nano_with(tmp_path, general__architecture="storm")

    weight = cli("why", storm, "blk.1.attn_q.weight", *PAPER)
    near = cli("why", storm, "blk.1.attn_q", *PAPER)
    node = cli("why", storm, "#0", *PAPER)

    assert weight.code == 0
    assert "In GPU0 memory because layer 1 is on GPU0" in weight.out
    assert "Near it: blk.1.attn_q.weight" in near.err
    assert node.code == 1
    assert "No operation of this model is planned." in node.err
    assert "#-1" not in node.err


def test_an_encoder_is_planned_without_words_of_prompts_and_tokens(cli, tmp_path):
    path = encoder(tmp_path)

    for batch in Batch:
        head = cli("plan", path, *PAPER, "--batch", batch.value).out.partition("\n\n")[0]
        assert " MiB copied per batch\n" in head
        assert "prompt" not in head
        assert "for a token" not in head


def test_why_of_an_ambiguous_name_lists_its_nodes(cli):
    done = cli("why", nano(), "norm-0", *PAPER)

    assert done.code == 1
    assert "norm-0@0 (#1 RMS_NORM)" in done.err
    assert "norm-0@1 (#" in done.err


def test_why_of_a_weight_in_two_memories_takes_its_name_and_what_it_lists(cli, tmp_path):
    tied = nano_with(tmp_path, drop=["output.weight"])
    name = "token_embd.weight"

    bare = cli("why", tied, name, *PAPER)
    second = cli("why", tied, f"{name}@1", *PAPER)
    third = cli("why", tied, f"{name}@2", *PAPER)

    assert "token_embd.weight@0 in CPU_Mapped, token_embd.weight@1 in" in bare.err
    assert (bare.code, second.code, third.code) == (0, 0, 1)
    assert "On GPU0" in second.out
    assert "#" not in third.err


def test_why_as_json_has_no_marks_in_its_sentence(cli):
    sentence = cli("why", nano(), "#3", *PAPER, "--json").json["sentence"]

    assert "because" in sentence
    assert "*" not in sentence


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ("nurm-0", "norm-0"),
        ("result_out", "Near it: result_output. Names"),
        ("#99", "This plan has nodes #0 to #98."),
        ("norm-0@2", "2 nodes have that name"),
        ("result_output@1", "One node has that name"),
        ("#x", "no node or weight called #x"),
    ],
)
def test_why_of_a_node_that_is_not_there_says_what_is(cli, node, said):
    done = cli("why", nano(), node, *PAPER)

    assert done.code == 1
    assert said in done.err


def test_a_model_without_a_graph_has_its_memory_planned_and_says_so(cli, tmp_path):
    done = cli("plan", nano_with(tmp_path, general__architecture="storm"))

    assert done.code == 0
    assert done.err.startswith("This version has no graph for storm models.")
    assert done.out.startswith("no node is planned · 0 splits for the prompt")


def test_a_model_without_a_graph_is_not_run(cli, tmp_path):
    done = cli("run", nano_with(tmp_path, general__architecture="storm"), "-p", "hello")

    assert done.code == 1
    assert done.err.startswith("This version has no graph for storm models.")


def test_shares_are_told_to_programs_where_there_are_none_too(cli):
    assert cli("memory", nano(), *PAPER, "--json").json["shares"] == []
