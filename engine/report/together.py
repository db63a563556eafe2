"""How several devices worked together in a run, in names and words. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.core.devices import DeviceType
from engine.core.summary import DeviceTime, IdleTime, LinkTime, OverlapTime, Together
from engine.trace.chains import Chains
from engine.trace.idle import IdleCause, idle_times, lane_uses, run_time
from engine.trace.lanes import device_lanes, overlap
from engine.trace.links import links
from engine.trace.records import MEMBER_LANE, SpanKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.core.table import DeviceRow, PlanTable
    from engine.trace.idle import Blame, LaneUse
    from engine.trace.lanes import Overlap, Thing
    from engine.trace.links import Link
    from engine.trace.records import Spans

HOST_TYPES = (DeviceType.CPU, DeviceType.ACCEL)
"""Devices that are there beside any others: they make no run one of several devices."""


def lane_devices(devices: Sequence[DeviceRow]) -> dict[int, DeviceRow]:
    """The device of each lane of a plan, in display order: members stand behind what joins them."""
    found: dict[int, DeviceRow] = {}
    member_lane = MEMBER_LANE
    for lane, device in enumerate(devices):
        found[lane] = device
        for member in device.members:
            found[member_lane] = member
            member_lane += 1
    return found


def together(
    spans: Spans, plans: Mapping[int, PlanTable], n_copies: int, pipeline_off: str
) -> Together | None:
    """How the devices worked together; None where but one computed beside the CPU.

    spans: those of a whole run, without nodes. The plans have the same devices.
    """
    first = next(iter(plans.values()), None)
    devices = lane_devices(() if first is None else first.devices)
    if sum(devices[lane].type not in HOST_TYPES for lane in device_lanes(spans)) < 2:
        return None
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
        pipeline_off=pipeline_off,
    )


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
            n_copies=link.n_copies,
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
