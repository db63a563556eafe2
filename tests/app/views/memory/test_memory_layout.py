from dataclasses import replace
from itertools import pairwise

from app.views.memory.facts import MIB, Part, Share, held_twice, memory_facts
from app.views.memory.layout import Ink, Role, lay_out, spare_text
from engine.core.devices import BufferTypeFacts, RowShares
from engine.core.plan import MemoryKind, MemoryLedger, MemoryRow
from engine.core.repack import CPU_REPACK
from tests.app.models import paper_pipeline, paper_run

CHAR_PX = 7.0


def measure(text):
    return CHAR_PX * len(text)


def made(facts, width=1280, height=72):
    return lay_out(facts, width, height, measure, measure)


def words(layout, line):
    return [paper_run.words(text.text) for text in layout.lines[line].texts]


def test_bars_have_the_exact_bytes_of_the_ledger():
    facts = memory_facts(paper_run.plans())

    assert [round(device.total / MIB, 2) for device in facts.devices] == [129.43, 105.93]


def test_devices_in_one_memory_that_fit_alone_and_not_together_are_a_problem():
    plans = paper_run.plans()
    gpu, cpu = plans.prompt.devices
    devices = (
        replace(gpu, shares_memory=True, memory_free=140 * MIB),
        replace(cpu, memory_free=140 * MIB),
    )
    token = replace(plans.token, devices=devices)

    facts = memory_facts(replace(plans, prompt=replace(plans.prompt, devices=devices), token=token))

    assert not any(device.over for device in facts.devices)
    assert paper_run.words(facts.problem).startswith(
        "Does not fit: OpenCL0, CPU work in the same memory, need "
    )


def test_parts_stand_in_fixed_order_and_touch():
    shapes = made(memory_facts(paper_run.plans())).lines[1].shapes

    parts = [shape.payload.part.value for shape in shapes]
    assert parts == ["model", "kv", "compute", "output"]
    for left, right in pairwise(shapes):
        assert left.rect.right == right.rect.x


def test_all_devices_have_one_scale():
    facts = memory_facts(paper_run.plans())
    layout = made(facts)

    scales = []
    for device, line in zip(facts.devices, layout.lines, strict=True):
        weights = line.shapes[0]
        scales.append(weights.rect.width / device.now[weights.payload.part])

    assert abs(scales[0] - scales[1]) < 1e-12


def test_labels_stand_inside_or_after_the_bar_and_none_twice():
    layout = made(memory_facts(paper_run.plans()))

    inside = [shape.label for line in layout.lines for shape in line.shapes if shape.label]
    assert inside == ["weights 30.80", "compute 98.25", "weights 92.10", "KV 10.88"]
    assert "KV 0.38" in words(layout, 0)
    assert "compute 2.76 · output 0.19" in words(layout, 1)


def test_no_text_overlaps_another_or_leaves_the_pane():
    for plans in (paper_run.plans(), paper_run.plans(-1, gpu_mib=260)):
        for width in (1024, 1280, 1600):
            layout = made(memory_facts(plans), width)
            for line in layout.lines:
                after = sorted(
                    (t.rect.x, t.rect.right) for t in line.texts if t.rect.x > line.shapes[0].rect.x
                )
                assert after[0][0] >= line.shapes[-1].rect.right
                assert after[-1][1] <= width
                for one, other in pairwise(after):
                    assert one[1] <= other[0] + 1


def test_a_far_capacity_is_a_broken_axis_with_what_is_spare():
    line = made(memory_facts(paper_run.plans())).lines[0]

    assert line.capacity_x is None
    assert line.break_x is not None
    assert paper_run.words(line.texts[-1].text) == "13 695 spare of 13 824 MiB"


def test_a_near_capacity_is_a_line_at_its_real_place():
    facts = memory_facts(paper_run.plans(-1, gpu_mib=260))
    line = made(facts).lines[0]

    device = facts.devices[0]
    weights = line.shapes[0]
    per_byte = weights.rect.width / device.now[weights.payload.part]
    assert line.break_x is None
    assert abs(line.capacity_x - weights.rect.x - device.free * per_byte) < 1e-6


def test_what_does_not_fit_is_hatched_and_said():
    facts = memory_facts(paper_run.plans(-1, gpu_mib=180))
    layout = made(facts, height=92)

    assert layout.lines[0].shapes[-1].role is Role.OVER
    assert layout.note.ink is Ink.ALERT
    assert paper_run.words(layout.note.text) == (
        "Does not fit: OpenCL0 needs 200 MiB and has 180, over by 20 MiB."
    )


def test_a_difference_colours_only_what_changed():
    facts = memory_facts(paper_run.plans(op_offload=False), paper_run.plans())
    layout = made(facts)

    roles = [[shape.role for shape in line.shapes] for line in layout.lines]
    assert roles[0] == [Role.SAME, Role.SAME, Role.SAME, Role.LESS]
    assert roles[1] == [Role.SAME, Role.SAME, Role.SAME, Role.MORE, Role.SAME]
    assert "compute \u22121.13" in words(layout, 0)
    assert "compute +11.25" in words(layout, 1)


def test_a_weight_in_two_memories_is_said_once():
    said = held_twice(paper_run.plans().prompt)

    assert paper_run.words(said) == "token_embd is held twice, 28.69 MiB"


def test_a_weight_that_two_devices_read_from_the_mapped_file_is_held_once():
    table = paper_run.plans().prompt
    both_map = replace(table, bufts=tuple(f"{name.split('_')[0]}_Mapped" for name in table.bufts))

    assert held_twice(both_map) == ""


def test_unreported_memory_is_said_and_not_drawn():
    facts = memory_facts(paper_run.plans(gpu_mib=0))

    assert spare_text(facts.devices[0]) == "free memory not reported"
    line = made(facts).lines[0]
    assert line.break_x is None
    assert line.capacity_x is None


def test_bars_shrink_to_sixteen_pixels_and_not_further():
    layout = made(memory_facts(paper_run.plans()), height=40)

    assert all(shape.rect.height == 16 for line in layout.lines for shape in line.shapes)


def test_a_device_on_paper_is_tagged_virtual():
    layout = made(memory_facts(paper_run.plans_without_gpu()))

    assert words(layout, 0)[0] == "GPU0 virtual"
    assert words(layout, 1)[0] == "CPU"


def repacked(n_bytes):
    """Return the plan's ledger with a part of the CPU's weights in CPU_REPACK."""
    plans = paper_run.plans()
    row = MemoryRow(CPU_REPACK, "CPU", MemoryKind.MODEL, n_bytes)
    return replace(plans, memory=MemoryLedger((*plans.memory.rows, row)))


def test_repacked_weights_are_a_part_of_their_own_beside_the_weights():
    facts = memory_facts(repacked(64 * MIB))
    shapes = made(facts).lines[1].shapes

    assert [shape.payload.part for shape in shapes[:2]] == [Part.MODEL, Part.REPACK]
    assert shapes[1].label == "CPU_REPACK 64.00"
    assert round(facts.devices[1].total / MIB, 2) == 169.93
    assert len({shape.tint for shape in shapes}) == len(shapes)


def test_the_tooltip_of_repacked_weights_says_what_they_are():
    tip = made(memory_facts(repacked(64 * MIB))).lines[1].shapes[1].payload.tip

    assert paper_run.words(tip).splitlines()[0] == "weights on CPU: 64.00 MiB in CPU_REPACK"
    assert "interleaved" in tip
    assert "cannot be offloaded" in tip


def test_repacked_weights_that_go_are_a_difference():
    facts = memory_facts(paper_run.plans(), repacked(64 * MIB))

    assert "CPU_REPACK \u221264.00" in words(made(facts), 1)


# Several devices.


def shared(**options):
    return memory_facts(paper_pipeline.plans(split_mode="tensor", **options))


def test_devices_that_are_joined_have_bars_of_what_each_holds():
    facts = shared()

    assert [device.name for device in facts.devices] == ["OpenCL0", "OpenCL1", "CPU"]
    ledger = paper_pipeline.plans(split_mode="tensor").memory
    members = facts.devices[:2]
    assert [d.now[Part.HELD] for d in members] == [share.n_bytes for share in ledger.shares]
    results = [device.now[Part.COMPUTE] for device in members]
    assert results == [share.results_bytes for share in ledger.shares]
    assert [device.total for device in members] == [s.needed_bytes for s in ledger.shares]
    assert [device.free for device in members] == [8_192 * MIB] * 2


def test_a_share_says_what_was_asked_and_what_it_came_to():
    layout = made(shared())

    assert "share 50.0 %, asked 50.0 %" in words(layout, 0)[-2]
    tip = paper_run.words(layout.lines[0].shapes[0].payload.tip)
    assert "weights and KV on OpenCL0" in tip
    assert "of it is on every device, whole" in tip


def test_a_change_of_devices_that_are_joined_shows_what_each_held_before():
    was = paper_pipeline.plans(split_mode="layer")
    facts = memory_facts(paper_pipeline.plans(split_mode="tensor"), was)

    last = facts.devices[1]
    assert last.name == "OpenCL1"
    assert sum(last.was.values()) == was.memory.total("OpenCL1")
    assert set(last.was) == set(last.now) == {Part.HELD, Part.COMPUTE}


def test_rows_of_matrices_are_weights_of_the_devices_that_have_them():
    plans = paper_pipeline.plans()
    shares = RowShares(("OpenCL0", "OpenCL1"), (3.0, 1.0))
    buft = BufferTypeFacts("OpenCL0_Split", row_shares=shares)
    rows = tuple(
        MemoryRow(buft, name, MemoryKind.MODEL, n_mib * MIB)
        for name, n_mib in (("OpenCL0", 70), ("OpenCL1", 30))
    )
    facts = memory_facts(replace(plans, memory=MemoryLedger(rows)))

    first, second, cpu = facts.devices
    assert (first.now, second.now) == ({Part.MODEL: 70 * MIB}, {Part.MODEL: 30 * MIB})
    assert (first.share, second.share) == (Share(0.75, 0.7), Share(0.25, 0.3))
    assert cpu.share is None
    assert "share 30.0 %, asked 25.0 %" in " ".join(words(made(facts), 1))
