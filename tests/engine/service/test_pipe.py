"""What is unpacked as a request, and what is not."""

import pickle
from pathlib import Path

import pytest

from engine.core.options import FlashAttn, Options
from engine.errors import UserError
from engine.service.messages import (
    ExportTrace,
    OpenModel,
    Poll,
    Replan,
    Shutdown,
    StartEmbed,
    StartRun,
    StopRun,
    TraceFormat,
)
from engine.service.pipe import unpack_request


class Evil:
    def __reduce__(self):
        return (print, ("evil",))


@pytest.mark.parametrize(
    "request_",
    [
        OpenModel(1, "demo"),
        OpenModel(1, "x.gguf", Options(devices=("A",), flash_attn=FlashAttn.OFF)),
        Replan(2, Options()),
        StartRun(3, "prompt", 5),
        StartEmbed(8, "text"),
        StopRun(4),
        ExportTrace(5, Path("a.json"), TraceFormat.CHROME),
        Poll(6),
        Shutdown(),
    ],
    ids=lambda request: type(request).__name__,
)
def test_every_request_arrives_as_it_was_sent(request_):
    assert unpack_request(pickle.dumps(request_, protocol=5)) == request_


@pytest.mark.parametrize("value", [Evil(), 5, None, Options(), ValueError("x")], ids=repr)
def test_anything_else_is_refused_and_nothing_of_it_runs(value, capsys):
    with pytest.raises(UserError, match="no request"):
        unpack_request(pickle.dumps(value))

    assert capsys.readouterr().out == ""


def pickled_call(module, name, argument):
    """A pickle that calls a function by any name, dots included, as a hostile sender would."""
    parts = (pickle.PROTO + b"\x04", text(module), text(name), pickle.STACK_GLOBAL)
    return b"".join((*parts, text(argument), pickle.TUPLE1, pickle.REDUCE, pickle.STOP))


def text(value):
    return pickle.SHORT_BINUNICODE + bytes([len(value)]) + value.encode()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("pathlib", "os.system"),
        ("engine.core.options", "enum.sys.stdout.write"),
        ("engine.service.messages", "enum.sys.stdout.write"),
        ("builtins", "print"),
    ],
)
def test_nothing_is_reached_through_the_modules_that_requests_come_from(module, name, capfd):
    with pytest.raises(UserError, match="no request"):
        unpack_request(pickled_call(module, name, "echo evil"))

    assert capfd.readouterr().out == ""


class OldStyle:
    """Pickles as getattr(owner, name), the way enumerations did before Python 3.11.4."""

    def __init__(self, owner, name):
        self.owner, self.name = owner, name

    def __reduce__(self):
        return (getattr, (self.owner, self.name))


def test_a_member_of_an_enumeration_arrives_from_an_older_python(tmp_path):
    request = ExportTrace(5, tmp_path, OldStyle(TraceFormat, "CHROME"))

    arrived = unpack_request(pickle.dumps(request, protocol=5))

    assert arrived == ExportTrace(5, tmp_path, TraceFormat.CHROME)


def test_no_other_attribute_can_be_reached_that_way(capsys):
    with pytest.raises(UserError, match="no request"):
        unpack_request(pickle.dumps(OldStyle(Path, "home")))

    assert capsys.readouterr().out == ""
