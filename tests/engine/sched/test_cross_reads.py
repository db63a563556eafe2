"""What other splits read of a split: in place, and through copies."""

from engine.core.plan import Batch
from engine.sched.cross_reads import CrossReads
from tests.engine.model.made_arch import made_header, planner_of


def reads_by_hand(plan, split):
    """The nodes of a split that are a source of another one's planned nodes."""
    planned, run = plan.graph.nodes, plan.run.nodes
    own = set(range(split.start, split.stop))
    index = {node: i for i, node in enumerate(planned)}
    return {
        run[index[source]]
        for i, node in enumerate(planned)
        if i not in own
        for source in node.src
        if index.get(source) in own
    }


def plan_of(tmp_path, devices, **options):
    with made_header(tmp_path, "llama") as file:
        planner = planner_of(file, devices, **options)
        return planner.reserved[Batch.TOKEN].plan


def test_what_is_copied_elsewhere_is_read_outside(tmp_path):
    plan = plan_of(tmp_path, ("G:gpu:8192", "CPU:cpu:16384"), n_gpu_layers=2)
    splits = plan.trace.cut.splits
    reads = CrossReads(plan)

    found = [reads.of(split.id) for split in splits]

    assert len(splits) > 1
    assert found == [reads_by_hand(plan, split) for split in splits]
    assert found[0]
    assert not found[-1]


def test_what_is_read_in_place_is_read_outside(tmp_path):
    plan = plan_of(tmp_path, ("BLAS:accel:0", "CPU:cpu:16384"), blas="all")
    splits = plan.trace.cut.splits
    reads = CrossReads(plan)

    assert all(reads.of(split.id) == reads_by_hand(plan, split) for split in splits)


def test_a_single_split_is_read_by_nobody(tmp_path):
    plan = plan_of(tmp_path, ("CPU:cpu:16384",))

    assert len(plan.trace.cut.splits) == 1
    assert CrossReads(plan).of(0) == frozenset()
