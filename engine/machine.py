"""Machine: the devices of this computer, or devices on paper in their place."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine.backend.computer import memory_bytes
from engine.backend.loader import Loader
from engine.backend.registry import Registry
from engine.backend.search_paths import default_folders, named_files
from engine.backends import OPTIONS, library_kinds, register_builtin
from engine.backends.choice import choose_backends
from engine.backends.meta.check import check_shared
from engine.backends.meta.device import join_devices
from engine.backends.null import presets
from engine.backends.null.reg import NullReg
from engine.backends.null.virtual import parse_paper
from engine.core.devices import HOST_TYPES, DeviceFacts, DeviceType, Unavailable
from engine.core.load_report import LoadReport, Outcome
from engine.errors import DeviceError, PlacementError
from engine.model.loader import check_present
from engine.report.devices import device_summary
from engine.sched.cross_reads import CrossReads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.backend.interface import BackendReg, Device
    from engine.core.load_report import Origin
    from engine.core.summary import DeviceSummary
    from engine.model.planning import ModelPlanner

PAPER_GPU_MIB = 8192


class Machine:
    """Devices of the backends that are built in and chosen, and of those that are loaded.

    `virtual` are lines as `parse_paper` reads them, and replace the real ones. `backends` is a
    list as `--backends` takes it. `load` are files and folders to load backends from, in place of
    the folders that are searched otherwise. `rpc` are addresses of ggml RPC servers, "host:port".
    """

    def __init__(
        self,
        virtual: Sequence[str] = (),
        *,
        backends: str | None = None,
        load: Sequence[str | Path] = (),
        rpc: Sequence[str] = (),
    ) -> None:
        self.paper_lines = tuple(virtual)
        on_paper = [parse_paper(text) for text in virtual]
        self._speeds = {device.facts.name: device.speed for device in on_paper}
        self._virtual = _with_cpu(tuple(device.facts for device in on_paper))
        _refuse_same_names(self._virtual)
        if virtual and (load or rpc or backends is not None):
            raise PlacementError(
                "--virtual goes with none of --load, --rpc and --backends.",
                "Devices on paper replace those of this machine.",
                "Leave out one of them.",
            )
        self._choice = choose_backends(backends, OPTIONS)
        self._load = tuple(dict.fromkeys(Path(path).expanduser() for path in load))
        self._rpc = tuple(dict.fromkeys(rpc))
        self._problem: DeviceError | None = None

    @property
    def is_on_paper(self) -> bool:
        """Whether the devices exist on paper only."""
        return bool(self._virtual)

    @functools.cached_property
    def loader(self) -> Loader:
        """What loads backends; those of this computer are found and loaded on first use."""
        registry = Registry()
        register_builtin(registry, self._choice)
        loader = Loader(registry, library_kinds(), default_folders(), named_files())
        if not self._load:
            loader.load_all()
        for path in self._load:
            self._problem = self._problem or load_problem(path, loader.load(path))
        if self._load:
            loader.load_named()
        self._connect(registry)
        return loader

    def _connect(self, registry: Registry) -> None:
        """Register the devices of every server; the first that has none to give is the problem."""
        for endpoint in self._rpc:
            # Only who has servers needs what talks to them.
            from engine.backends.ggml import rpc

            try:
                reg = rpc.connect(rpc.family_of_servers(registry.regs()), endpoint)
                registry.register(reg, rpc.origin_of(endpoint))
            except DeviceError as error:
                self._problem = self._problem or error
                reason = f"{error.title} {error.sentence}".rstrip(" .")
                registry.add_absent(Unavailable(f"RPC[{endpoint}]", reason, error.hint))

    def check_loaded(self) -> None:
        """Raise DeviceError when a path of --load or a server of --rpc gave nothing."""
        if self._load or self._rpc:
            self.devices()  # They are loaded on first use.
        if self._problem is not None:
            raise self._problem

    def devices(self) -> tuple[Device, ...]:
        """The real devices, in priority order."""
        return self.loader.registry.devices()

    def real_registry(self) -> Registry:
        """The families and devices of this machine; DeviceError when it has devices on paper."""
        if self._virtual:
            raise DeviceError(
                "Devices on paper compute nothing.",
                "They have no memory and no kernels.",
                "Leave --virtual out.",
            )
        return self.loader.registry

    def paper_family(self) -> NullReg:
        """The devices on paper, new ones, whose clock begins at 0."""
        return NullReg(self._virtual, speeds=self._speeds)

    def facts(self) -> tuple[DeviceFacts, ...]:
        """What planning may know of the devices now; devices on paper get a CPU on paper."""
        return self._virtual or tuple(device.facts for device in self.devices())

    def summaries(self) -> tuple[DeviceSummary, ...]:
        """The devices for people."""
        if self._virtual:
            return tuple(device_summary(facts, virtual=True) for facts in self._virtual)
        return tuple(self._summary(device) for device in self.devices())

    def unavailable(self) -> tuple[Unavailable, ...]:
        """Devices and backends left out, with reasons."""
        return () if self._virtual else self.loader.registry.unavailable()

    def load_report(self) -> LoadReport:
        """Every path that was tried to load backends."""
        return LoadReport() if self._virtual else self.loader.report

    def _summary(self, device: Device) -> DeviceSummary:
        registry = self.loader.registry
        reg = registry.family(device)
        return device_summary(
            device.facts,
            virtual=False,
            device=device,
            reg_index=registry.regs().index(reg),
            origin=self._origin(reg),
        )

    def _origin(self, reg: BackendReg) -> Origin | None:
        origin = self.loader.registry.origin(reg)
        if origin is None:
            return None
        tried = self.loader.report.of(origin.kind, origin.backend) if origin.kind else LoadReport()
        return replace(origin, attempts=tried.attempts)


def devices_for(planner: ModelPlanner, devices: Sequence[Device]) -> dict[str, Device]:
    """The devices by name, with the one that joins some of them where the model is planned for it.

    Raises: PlacementError where they cannot share the model's graphs; DeviceError for one that is
    not there any more.
    """
    known = {device.facts.name: device for device in devices}
    joined = planner.model.joined
    if joined is None:
        return known
    check_present(planner.model, known)
    n_bytes = exchange_bytes(planner)
    members = [known[member.name] for member in joined.members]
    made = join_devices(joined, members, planner.model.shards, exchange_bytes=n_bytes)
    return known | {joined.name: made}


def exchange_bytes(planner: ModelPlanner) -> int:
    """Bytes of each member's memory that joined devices exchange through; 0 without such.

    Raises: PlacementError where they cannot share the model's graphs.
    """
    joined = planner.model.joined
    if joined is None:
        return 0
    plans = [planned.plan for planned in planner.reserved.values()]
    shards = planner.model.shards
    return max(
        check_shared(plan, joined, shards, read_outside=CrossReads(plan).of) for plan in plans
    )


def load_problem(path: Path, report: LoadReport) -> DeviceError | None:
    """What to say when nothing was loaded from a path that a person named; None when it was."""
    if report.has_loaded:
        return None
    tried = [a for a in report.attempts if a.outcome is not Outcome.NOT_FOUND]
    reasons = [f"{Path(attempt.path).name}: {attempt.reason.rstrip('.')}." for attempt in tried]
    return DeviceError(
        "No backend was loaded.",
        reasons[0] if reasons else report.nothing_words(str(path.absolute())),
        f"Look at what was tried: python -m engine devices --load {path}",
        "\n".join(reasons[1:]),
    )


def with_paper_gpu(facts: tuple[DeviceFacts, ...]) -> tuple[DeviceFacts, ...]:
    """`facts` with a GPU on paper in front, unless they have a GPU."""
    if any(device.type not in HOST_TYPES for device in facts):
        return facts
    gpu = presets.cuda("GPU0", PAPER_GPU_MIB * presets.MIB)
    description = "on paper: this computer has no OpenCL device"
    return (replace(gpu, description=description), *facts)


def _with_cpu(devices: tuple[DeviceFacts, ...]) -> tuple[DeviceFacts, ...]:
    """Devices on paper with a CPU on paper, unless they have one; none stay none."""
    if not devices or any(facts.type is DeviceType.CPU for facts in devices):
        return devices
    return (*devices, presets.cpu("CPU", memory_bytes()[1]))


def _refuse_same_names(devices: Sequence[DeviceFacts]) -> None:
    seen: set[str] = set()
    for facts in devices:
        if facts.name.lower() in seen:
            raise PlacementError(
                f"Two devices are called {facts.name}.",
                "Placements and memory are told apart by name.",
                "Give each --virtual a name of its own; CPU is the CPU's, which is always there.",
            )
        seen.add(facts.name.lower())
