"""The records of a trace: spans (something took time) and marks (something happened).

All times are ns of the host's monotonic clock. Ids are those of the plan: a span of split 7 of
plan 3 has plan_id 3, index 7.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


class SpanKind(enum.IntEnum):
    """What a span measured."""

    SPLIT = 0
    """A split computing on `lane`; index = split id."""
    COPY = 1
    """An input copy into `lane` from `peer`; index = copy id; bytes = copied.

    One for each run of experts where only used ones are copied, with the numbers of the run; one
    for each member of a META device, which all get everything.
    """
    WAIT = 2
    """The host waiting for `lane`; index = the split about to run."""
    NODE = 3
    """One node on `lane`; index = node id. Only of backends that time each node: the CPU."""
    STEP = 4
    """One graph from its planning to logits read; index = step id; bytes = tokens in it."""
    PLAN = 5
    """The host planning and allocating a batch shape that is new; index = step id."""
    SHARD = 6
    """A device computing its share of a split (-sm row, -sm tensor); index = split id, lane = the
    device's. The split's own span covers it."""
    EXCHANGE = 7
    """Bytes from `peer` to `lane` within a split: what shares hand over; index = split id."""


class StepKind(enum.IntEnum):
    """What a step computed."""

    PROMPT = 0
    TOKEN = 1


MEMBER_LANE = 128
"""The lane of the first member of a META device; the others follow. See `placed_lanes`."""

HOST_LANE = 255
"""The lane of spans that belong to no device: steps and planning."""

NO_LANE = 255
"""In place of a lane where there is none, such as the source of what is no copy."""


class Joining(Protocol):
    """A device, and those that it joins."""

    @property
    def members(self) -> Sequence[Self]:
        """The devices that it joins; none for any but a META device."""
        ...


D = TypeVar("D", bound=Joining)


class PlacedDevice(NamedTuple, Generic[D]):
    """A device and its lane; `owner` is the lane of the backend that it is, or that joins it."""

    lane: int
    device: D
    owner: int


def placed_lanes(backends: Iterable[D]) -> Iterator[PlacedDevice[D]]:
    """Every lane of a plan's devices, in display order: members stand behind what joins them."""
    member_lane = MEMBER_LANE
    for backend_id, device in enumerate(backends):
        yield PlacedDevice(backend_id, device, backend_id)
        for member in device.members:
            yield PlacedDevice(member_lane, member, backend_id)
            member_lane += 1


NO_EXPERTS = (-1, -1)
"""First and last expert of what is no run of experts."""

NOT_EXPECTED = -1
"""In place of an epoch, for a span that nobody announced."""

SPAN_DTYPE = np.dtype(
    [
        ("kind", "u1"),  # SpanKind
        ("lane", "u1"),  # backend_id, MEMBER_LANE + i, HOST_LANE for steps and planning
        ("peer", "u1"),  # COPY, EXCHANGE: lane of the source; STEP: StepKind; else 255
        ("flags", "u1"),  # SpanFlag
        ("plan_id", "i4"),
        ("index", "i4"),
        ("step", "i4"),  # the step it belongs to, counted from 0 over the run
        ("start_ns", "i8"),
        ("end_ns", "i8"),
        ("bytes", "i8"),
        ("first_expert", "i2"),  # COPY of a run of experts; else -1
        ("last_expert", "i2"),
    ],
    align=True,  # 4 bytes more a span, and numpy reads whole words
)

Spans = npt.NDArray[np.void]
"""A read-only array of SPAN_DTYPE."""


class SpanFlag(enum.IntFlag):
    """What is special about a span."""

    NONE = 0
    CLOCK_CONVERTED = 1
    """The device has its own clock; the times were mapped to the host's."""
    WEIGHT = 2
    """COPY of a weight (op_offload)."""
    USER_INPUT = 4
    """COPY of something the caller wrote: tokens, positions, mask."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened at one moment, such as "op_offload off"."""

    time_ns: int
    text: str
