"""How several devices worked together in a run, in names and words. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine.core.devices import HOST_TYPES
from engine.core.summary import DeviceTime, IdleTime, LinkTime, OverlapTime, Together
from engine.trace.chains import Chains, last_steps
from engine.trace.idle import IdleCause, idle_times, lane_uses, run_time
from engine.trace.lanes import device_lanes, overlap
from engine.trace.links import links
from engine.trace.records import SpanKind, placed_lanes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.core.table import DeviceRow, PlanTable
    from engine.trace.idle import Blame, LaneUse
    from engine.trace.lanes import Overlap, Thing
    from engine.trace.links import Link
    from engine.trace.records import Spans


def together(
    whole_run: Spans, plans: Mapping[int, PlanTable], n_copies: int, pipeline_obstacle: str
) -> Together:
    """How the devices worked together.

    whole_run: its spans, without nodes; of a very long run the last steps are looked at. The plans
    have the same devices.
    """
    spans, devices = last_steps(whole_run), _devices(plans)
    words = _Words(devices, plans)
    chains = Chains(spans, plans)
    uses = {use.lane: use for use in lane_uses(chains, idle_times(chains))}
    start_ns, end_ns = run_time(chains)
    found = overlap(spans)
    return Together(
        wall_ns=end_ns - start_ns,
        devices=tuple(words.device_time(uses[lane]) for lane in devices if lane in uses),
        links=tuple(words.link_time(link) for link in links(spans)),
        overlap_ns=found.total_ns,
        overlaps=words.overlaps(found),
        n_copies=n_copies,
        pipeline_obstacle=pipeline_obstacle,
        n_steps=len(chains.steps),
        n_run_steps=int(np.count_nonzero(whole_run["kind"] == SpanKind.STEP)),
    )


def are_several(spans: Spans, plans: Mapping[int, PlanTable]) -> bool:
    """Whether more than one device computed beside the CPU."""
    devices = _devices(plans)
    return sum(devices[lane].type not in HOST_TYPES for lane in device_lanes(spans)) > 1


def _devices(plans: Mapping[int, PlanTable]) -> dict[int, DeviceRow]:
    """The device of each lane, in display order."""
    first = next(iter(plans.values()), None)
    backends = () if first is None else first.devices
    return {placed.lane: placed.device for placed in placed_lanes(backends)}


@dataclass(frozen=True, slots=True)
class _Words:
    """Names for what has numbers."""

    devices: Mapping[int, DeviceRow]
    plans: Mapping[int, PlanTable]

    def _name(self, lane: int) -> str:
        return self.devices[lane].name if lane in self.devices else f"lane {lane}"

    def device_time(self, use: LaneUse) -> DeviceTime:
        device = self.devices[use.lane]
        idle = tuple(self._idle_time(cause, use) for cause in IdleCause if use.idle_ns[cause])
        return DeviceTime(device.name, device.type, use.busy_ns, idle)

    def _idle_time(self, cause: IdleCause, use: LaneUse) -> IdleTime:
        blame, time_ns = use.worst[cause], use.idle_ns[cause]
        if cause is IdleCause.NOTHING:
            return IdleTime(cause.value, time_ns)
        return IdleTime(cause.value, time_ns, self._fault(blame), blame.total_ns)

    def _fault(self, blame: Blame) -> str:
        thing = blame.thing
        if thing is None:
            return "between steps"
        plan = self.plans[thing.plan_id]
        if thing.is_launching:
            return f"launching pieces of {self._split(thing, plan)}"
        match thing.kind:
            case SpanKind.COPY:
                source = self._name(int(plan.copies[thing.item_id]["source"]))
                return f"copy {thing.item_id} from {source}, {plan.copy_name(thing.item_id)}"
            case SpanKind.EXCHANGE:
                return f"exchanges in {self._split(thing, plan)}"
            case SpanKind.SPLIT | SpanKind.SHARD:
                return f"{self._name(thing.lane)}: {self._split(thing, plan)}"
            case SpanKind.PLAN:
                return "planning"
            case SpanKind.WAIT:
                return f"waits for {self._name(thing.lane)}"
        return "launching, inputs and results"

    def _split(self, thing: Thing, plan: PlanTable) -> str:
        return f"split {thing.item_id}, {plan.split_name(thing.item_id)}"

    def link_time(self, link: Link) -> LinkTime:
        return LinkTime(
            source=self._name(link.source_lane),
            target=self._name(link.target_lane),
            n_transfers=link.n_transfers,
            n_bytes=link.n_bytes,
            busy_ns=link.busy_ns,
            p50_ns=link.p50_ns,
            p95_ns=link.p95_ns,
        )

    def overlaps(self, found: Overlap) -> tuple[OverlapTime, ...]:
        return tuple(
            OverlapTime((self._name(a), self._name(b)), time_ns)
            for (a, b), time_ns in found.pairs.items()
        )
