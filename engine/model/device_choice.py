"""Which devices a model uses, and why the others are left out. Pure.

Source: SCHED.md 6, src/llama.cpp llama_prepare_model_devices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine.core.devices import DeviceFacts, DeviceType
from engine.core.options import SplitMode
from engine.core.plan import DeviceRole, DeviceUse
from engine.errors import PlacementError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.core.options import Options

RPC = "RPC"
"""The family whose devices come first, to keep what crosses the network small."""


NONE = "none"
"""In place of devices (-dev): the CPU alone."""


@dataclass(frozen=True, slots=True)
class DeviceChoice:
    """The devices that layers are for, in order, and by name why each of the others has none."""

    devices: tuple[DeviceFacts, ...]
    left_out: dict[str, str]


def choose_devices(
    devices: Sequence[DeviceFacts], options: Options, cpu: DeviceFacts
) -> DeviceChoice:
    """The devices a model uses: those named, in that order, else GPUs as llama.cpp picks them.

    With -sm tensor they are the members of the device that joins them.

    Raises PlacementError for a name or a main GPU that is not there, and for shares (-ts) that do
    not go with the devices.
    """
    if options.devices is not None:
        choice = _named_ones(devices, options.devices)
    elif options.split_mode is SplitMode.TENSOR:
        choice = _all_with_memory(devices, cpu)
    else:
        choice = _by_kind(devices)
    if options.split_mode is SplitMode.NONE:
        return _main_only(choice, options.main_gpu)
    check_tensor_split(options.tensor_split, choice.devices)
    return choice


def _named_ones(devices: Sequence[DeviceFacts], names: Sequence[str]) -> DeviceChoice:
    if len(names) > 1 and NONE in [name.lower() for name in names]:
        raise PlacementError(
            f"-dev cannot be {','.join(names)}.",
            f"{NONE} means no device beside the CPU, and goes with no other name.",
            f"Leave {NONE} out, or give it alone.",
        )
    wanted = [name for name in names if name.lower() not in (NONE, "cpu")]
    chosen = tuple(_named(devices, name) for name in wanted)
    _refuse_twice(chosen)
    others = (device.name for device in devices if device not in chosen)
    return DeviceChoice(chosen, dict.fromkeys(others, "-dev does not name it"))


def _all_with_memory(devices: Sequence[DeviceFacts], cpu: DeviceFacts) -> DeviceChoice:
    """What -sm tensor joins: not only GPUs, and the same card twice if two backends have it."""
    chosen = tuple(device for device in devices if device.buft != cpu.buft)
    others = (device.name for device in devices if device not in chosen)
    return DeviceChoice(chosen, dict.fromkeys(others, "it has no memory of its own"))


def _by_kind(devices: Sequence[DeviceFacts]) -> DeviceChoice:
    """Servers, then each card once; integrated GPUs of one family where there is no card."""
    rpc: list[DeviceFacts] = []
    gpus: list[DeviceFacts] = []
    igpus: list[DeviceFacts] = []
    left_out: dict[str, str] = {}
    for device in devices:
        if device.type is DeviceType.GPU and device.reg == RPC:
            rpc.append(device)
        elif device.type is DeviceType.GPU:
            same = _same_card(device, gpus)
            if same is None:
                gpus.append(device)
            else:
                left_out[device.name] = f"the same card as {same.name} ({device.device_id})"
        elif device.type is DeviceType.IGPU:
            if not igpus or igpus[-1].reg == device.reg:
                igpus.append(device)
            else:
                left_out[device.name] = (
                    f"an integrated GPU of another backend than {igpus[-1].name}, and perhaps the "
                    "same one"
                )
    if gpus:
        integrated = (device.name for device in devices if device.type is DeviceType.IGPU)
        left_out |= dict.fromkeys(integrated, f"an integrated GPU beside the GPU {gpus[0].name}")
        igpus = []
    return DeviceChoice((*rpc, *gpus, *igpus), left_out)


def _same_card(device: DeviceFacts, gpus: Sequence[DeviceFacts]) -> DeviceFacts | None:
    """The one of `gpus` at the same address."""
    if device.device_id is None:
        return None
    return next((gpu for gpu in gpus if gpu.device_id == device.device_id), None)


def _main_only(choice: DeviceChoice, main_gpu: int) -> DeviceChoice:
    """The main GPU alone; below 0 none, and none of none."""
    chosen = choice.devices
    if not chosen:
        return choice
    if main_gpu >= len(chosen):
        names = ", ".join(f"{i} is {device.name}" for i, device in enumerate(chosen))
        raise PlacementError(
            f"There is no GPU number {main_gpu}.",
            f"They are counted from 0: {names}.",
            "Choose another main GPU (-mg).",
        )
    main = chosen[main_gpu : main_gpu + 1] if main_gpu >= 0 else ()
    why = f"all layers are for {main[0].name} (-sm none)" if main else "no GPU is wanted (-mg -1)"
    others = dict.fromkeys((device.name for device in chosen if device not in main), why)
    return DeviceChoice(main, choice.left_out | others)


def check_tensor_split(shares: Sequence[float], devices: Sequence[DeviceFacts]) -> None:
    """PlacementError unless there is a share for each device, and one of them is above 0.

    llama.cpp takes what it gets: missing shares are 0, others are not looked at, and without any
    above 0 it is as if -ts was not given.
    """
    if not shares:
        return
    if not any(np.float32(share) for share in shares):
        raise PlacementError(
            "-ts gives no device a share.",
            "All of its shares are 0. llama.cpp takes that as if -ts was not given.",
            "Leave -ts out, or give shares such as 3,1.",
        )
    title = f"-ts has {_counted(len(shares), 'share')} for {_counted(len(devices), 'device')}."
    names = ", ".join(device.name for device in devices[len(shares) :])
    if names:
        zeros = ",".join(["1"] * len(shares) + ["0"] * (len(devices) - len(shares)))
        raise PlacementError(
            title,
            f"{names} would get nothing.",
            f"Give each device a share; one that is to get nothing has 0, such as -ts {zeros}.",
        )
    if len(shares) > len(devices):
        names = ", ".join(device.name for device in devices)
        raise PlacementError(
            title,
            f"In order they are for {names}." if names else "The model is on the CPU alone.",
            f"Give {len(devices)}, or leave -ts out." if names else "Leave -ts out.",
        )


def _counted(n: int, word: str) -> str:
    return f"{n or 'no'} {word}{'' if n == 1 else 's'}"


def _refuse_twice(chosen: Sequence[DeviceFacts]) -> None:
    for i, device in enumerate(chosen):
        if device in chosen[:i]:
            raise PlacementError(
                f"The device {device.name} is named twice.",
                "A model's layers are shared among different devices.",
                "Name each device once (-dev).",
            )


def _named(devices: Sequence[DeviceFacts], name: str) -> DeviceFacts:
    for device in devices:
        # "opencl" alone stands for the first device of that family.
        if name.lower() in (device.name.lower(), device.reg.lower()):
            return device
    known = ", ".join(device.name for device in devices)
    raise PlacementError(
        f"There is no device {name}.", f"This machine has {known}.", "See: python -m engine devices"
    )


def uses_of(
    devices: Sequence[DeviceFacts],
    known: Sequence[DeviceFacts],
    choice: DeviceChoice,
    cpu: DeviceFacts,
) -> tuple[DeviceUse, ...]:
    """What becomes of each of `devices`, of which `known` are those that no option turns off."""
    chosen = {device.name for device in choice.devices}
    on = {device.name for device in known}
    return tuple(
        DeviceUse(device.name, DeviceRole.LAYERS)
        if device.name in chosen
        else DeviceUse(device.name, DeviceRole.OFF, "--blas is off")
        if device.name not in on
        else _other_use(device, choice, cpu)
        for device in devices
    )


def _other_use(device: DeviceFacts, choice: DeviceChoice, cpu: DeviceFacts) -> DeviceUse:
    """What becomes of a device that layers are not for."""
    if device.name == cpu.name:
        return DeviceUse(device.name, DeviceRole.BESIDE, "the CPU takes what no other device does")
    if device.type is DeviceType.ACCEL:
        return DeviceUse(device.name, DeviceRole.BESIDE, f"it takes operations of {cpu.name}")
    reason = choice.left_out.get(device.name, f"{cpu.name} is the CPU")
    return DeviceUse(device.name, DeviceRole.LEFT_OUT, reason)
