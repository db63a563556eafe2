"""Backends in Python files, sound ones and others, written where a test wants them."""

from pathlib import Path

SOUND = """\
from engine.backend.host_buffer import HostBufferType
from engine.backend.interface import BackendReg, Device
from engine.core.devices import BufferTypeFacts, DeviceFacts, DeviceType, TableRules

API_VERSION = 2


class OneDevice(Device):
    def __init__(self, reg):
        self.reg = reg

    @property
    def facts(self):
        name = {device!r}
        return DeviceFacts(
            name, "of a test", DeviceType.{type}, {reg!r}, BufferTypeFacts(name),
            TableRules(bufts=frozenset({{name}})),
            device_id={device_id!r},
        )

    def init_backend(self):
        raise NotImplementedError

    def buffer_type(self):
        return HostBufferType(self.facts.buft)


class Reg(BackendReg):
    name = {reg!r}

    def __init__(self):
        self._devices = (OneDevice(self),)

    def devices(self):
        return self._devices

    def get_proc_address(self, name):
        return (lambda: {{"SLOW": "1"}}) if name == "ggml_backend_get_features" else None


def backend_init():
    return Reg()
"""

SCORED = """

def backend_score():
    return {score}
"""


def write_plugin(
    folder: Path, name: str, variant="", *, score=None, device="", device_id=None,
    type="GPU", before="", after="",
) -> Path:  # fmt: skip
    """Write a sound plug-in with one device, called as the backend unless it is said otherwise.

    `before` and `after` are lines that stand around its code.
    """
    text = SOUND.format(
        device=device or name.upper(), reg=name.upper(), type=type, device_id=device_id
    )
    if score is not None:
        text += SCORED.format(score=score)
    folder.mkdir(parents=True, exist_ok=True)
    dash = f"-{variant}" if variant else ""
    path = folder / f"splitscope_backend_{name}{dash}.py"
    path.write_text(f"{before}\n{text}\n{after}\n")
    return path
