"""MetaBackend: a stream on each member, and what they hand to one another within a split."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from engine.backend.interface import Backend, Completion, DoneEvent, Event, Place, SplitGraph
from engine.backend.memory_refusal import Wanted
from engine.backend.release import release_all
from engine.backend.transfer import copy_bytes
from engine.backends.meta.bind import BoundMove, bind
from engine.backends.meta.buffer import alloc_all
from engine.backends.meta.events import JointEvent, Work
from engine.core import build
from engine.core.devices import BufferUsage
from engine.core.tensor import Tensor
from engine.core.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from engine.backend.interface import Buffer
    from engine.backends.meta.device import MetaDevice
    from engine.core.shards import Shard


class MetaBackend(Backend):
    """Members compute their stages concurrently; what they exchange holds streams, not the host.

    Where members have no events or cannot queue a copy from one another, the host waits for them.
    """

    def __init__(self, device: MetaDevice, shards: Mapping[Tensor, Shard]) -> None:
        self.name = device.facts.stream_name
        self.device: MetaDevice = device
        self._shards = shards
        self._names = [member.facts.name for member in device.members]
        self._members: list[Backend] = []
        self._scratch: list[tuple[Buffer, ...]] = []
        try:
            for member in device.members:
                self._members.append(member.init_backend())
            self._arrivals = [member.event_new() for member in device.members]
        except BaseException:
            self.dispose()
            raise

    def graph_compute(self, graph: SplitGraph) -> Event:
        """Queue every member's stages; the event is done when all members are.

        Raises: what members raise, and PlacementError for a node that cannot be shared.
        """
        if graph.program is None:
            graph.program = bind(graph, len(self._members), self._shards, self._scratch_places)
        queue = _Queue()
        for step in graph.program:
            if isinstance(step, list):
                self._exchange(step, queue)
            else:
                self._compute(step, queue)
        return queue.event()

    def _compute(self, graphs: Sequence[SplitGraph | None], queue: _Queue) -> None:
        for member, graph in enumerate(graphs):
            if graph is not None:
                event = self._members[member].graph_compute(graph)
                queue.add_stage(member, Work(event, self._names[member]))

    def _exchange(self, moves: Sequence[BoundMove], queue: _Queue) -> None:
        """Copy once both ends have come so far: what is overwritten was read before."""
        self._wait_for_targets(moves)
        for move in moves:
            source, target = self._members[move.source], self._members[move.target]
            event = target.cpy_tensor_async(source, move.sent, move.received, move.n_bytes)
            if event is None:
                source.synchronize()
                target.synchronize()
                event = copy_bytes(move.sent, move.received, move.n_bytes)
            names = self._names[move.target], self._names[move.source]
            queue.add_move(move, Work(event, *names, move.n_bytes))

    def _wait_for_targets(self, moves: Sequence[BoundMove]) -> None:
        """Hold each source until those it sends to have computed all that they were given."""
        for member in dict.fromkeys(move.target for move in moves):
            arrival = self._arrivals[member]
            if arrival is None:
                self._members[member].synchronize()
            else:
                self._members[member].event_record(arrival)
        for source, target in dict.fromkeys((move.source, move.target) for move in moves):
            arrival = self._arrivals[target]
            if arrival is not None:
                self._members[source].event_wait(arrival)

    def _scratch_places(self, n_bytes: int) -> list[Place]:
        """Room in every member's memory.

        What is bound to smaller room keeps it: each is at least twice the one before, so that all
        of them are never more than twice the newest.
        """
        largest = self._scratch[-1][0].size if self._scratch else 0
        if n_bytes > largest:
            asked = Wanted("what members exchange", max(n_bytes, 2 * largest), is_shared=True)
            wanted = [(member, asked) for member in self.device.members]
            self._scratch.append(alloc_all(wanted, BufferUsage.COMPUTE))
        return [Place(buffer, 0) for buffer in self._scratch[-1]]

    def synchronize(self) -> None:
        """Block until every member is done."""
        for member in self._members:
            member.synchronize()

    def set_stop_word(self, address: int) -> None:
        """Let every member look at the word."""
        for member in self._members:
            member.set_stop_word(address)

    def set_threads(self, n_threads: int) -> None:
        """Threads of every member that has any."""
        for member in self._members:
            set_n = member.device.reg.get_proc_address("ggml_backend_set_n_threads")
            if set_n is not None:
                set_n(member, n_threads)

    def prepare(self, on_progress: Callable[[int, int, str], None] | None = None) -> None:
        """Prepare every member."""
        for member in self._members:
            member.prepare(on_progress)

    def prepare_for(
        self,
        nodes: Iterable[Tensor],
        on_progress: Callable[[int, int, str], None] | None = None,
    ) -> None:
        """Prepare every member for these nodes, and for adding and moving what is exchanged.

        Raises: what members raise; MemoryRefusedError where one has no memory for the exchange.
        """
        wanted = [*nodes, *_exchange_nodes()]
        for member in self._members:
            member.prepare_for(wanted, on_progress)
        if self.device.exchange_bytes:
            self._scratch_places(self.device.exchange_bytes)

    def dispose(self) -> None:
        """End the members' streams and give the scratch back."""
        scratch = [buffer for buffers in self._scratch for buffer in buffers]
        self._scratch.clear()
        streams = [member.dispose for member in self._members]
        release_all([*streams, *[buffer.release for buffer in scratch]])


class _Queue:
    """What was queued for a split, and which of it is last."""

    def __init__(self) -> None:
        self._works: list[Work] = []
        self._last: dict[tuple[int, int], int] = {}

    def add_stage(self, member: int, work: Work) -> None:
        """A member's stream goes on: what it was handed has come."""
        self._last = {key: i for key, i in self._last.items() if key[1] != member}
        self._add((member, member), work)

    def add_move(self, move: BoundMove, work: Work) -> None:
        """A copy between two streams."""
        self._add((move.source, move.target), work)

    def _add(self, key: tuple[int, int], work: Work) -> None:
        self._last[key] = len(self._works)
        self._works.append(work)

    def event(self) -> Event:
        """The event of all of it."""
        if not self._works:
            now_ns = time.monotonic_ns()
            return DoneEvent(Completion(now_ns, now_ns))
        return JointEvent(self._works, self._last.values())


def _exchange_nodes() -> list[Tensor]:
    """Operations of the kinds that exchanges add to a split."""
    x = Tensor(TensorType.F32, (32, 2, 1, 1))
    return [build.add(x, x), build.cpy(x, Tensor(TensorType.F32, (32, 2, 1, 1)))]
