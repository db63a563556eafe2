"""The child's end of the pipe: it connects, sends answers, and unpacks nothing but requests."""

from __future__ import annotations

import contextlib
import enum
import io
import os
import pickle
import threading
from contextlib import contextmanager
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.core.options import OPTION_SPECS, Options, TensorOverride
from engine.errors import UserError
from engine.service.messages import REQUESTS, Answer, Request, TraceFormat

if TYPE_CHECKING:
    from collections.abc import Iterator

ADDRESS_VARIABLE = "SPLITSCOPE_ADDRESS"
KEY_VARIABLE = "SPLITSCOPE_AUTHKEY"

_CHOICES = {spec.kind for spec in OPTION_SPECS if issubclass(spec.kind, enum.Enum)}
_VALUES = (TraceFormat, Options, TensorOverride, *_CHOICES)

_CLASSES: dict[tuple[str, str], type] = {
    (cls.__module__, cls.__qualname__): cls for cls in (*REQUESTS, *_VALUES, type(Path()))
}
"""What requests are made of, by the names that pickles give them."""


@contextmanager
def connected_pipe() -> Iterator[Pipe]:
    """The pipe to the window that started this process.

    Raises:
        UserError: nobody listens, or not the window that started it.
    """
    address, key = os.environ.pop(ADDRESS_VARIABLE, ""), os.environ.pop(KEY_VARIABLE, "")
    if not address or not key:
        raise UserError(
            "There is no window to serve.",
            "A window starts its engine itself and tells it where to connect.",
            "Start the window: splitscope",
        )
    try:
        connection = Client(address, authkey=bytes.fromhex(key))
    except (OSError, EOFError, ValueError, AuthenticationError) as error:
        raise UserError(
            "The engine cannot reach the window.", f"{error}.", "Start the window again."
        ) from error
    with contextlib.closing(connection):
        yield Pipe(connection)


class Pipe:
    """Any thread may send, one receives. A window that is gone is no error: the process ends."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def send(self, answer: Answer) -> None:
        """Send one answer."""
        data = pickle.dumps(answer, protocol=5)
        with self._lock, contextlib.suppress(OSError):
            self._connection.send_bytes(data)

    def receive(self) -> Request | None:
        """The next request, waited for; None when the window is gone.

        Raises:
            UserError: what came is no request.
        """
        try:
            data = self._connection.recv_bytes()
        except (EOFError, OSError):
            return None
        return unpack_request(data)


def unpack_request(data: bytes) -> Request:
    """The request in `data`; UserError when it is something else."""
    try:
        request = _RequestUnpickler(io.BytesIO(data)).load()
    except Exception as error:
        # Unpickling raises whatever the bytes make it do.
        raise _no_request(f"{type(error).__name__}: {error}") from error
    if not isinstance(request, REQUESTS):
        raise _no_request(f"It is a {type(request).__name__}.")
    return request


def _no_request(details: str) -> UserError:
    return UserError(
        "The engine was sent something that is no request.",
        "It ends, since what comes next cannot be trusted either.",
        "Start the window again; window and engine must be of the same version.",
        details,
    )


class _RequestUnpickler(pickle.Unpickler):
    """Unpacks the classes that requests are made of."""

    def find_class(self, module: str, name: str) -> Any:
        """The class; UnpicklingError for one that no request has."""
        if (module, name) == ("builtins", "getattr"):
            # Python before 3.11.4 pickles a member of an enumeration as getattr(class, name).
            return _enum_member
        found = _CLASSES.get((module, name))
        if found is None:
            raise pickle.UnpicklingError(f"{module}.{name} is in no request")
        return found


def _enum_member(owner: Any, name: str) -> enum.Enum:
    """The member of an enumeration; UnpicklingError for an attribute of anything else."""
    if not (isinstance(owner, type) and issubclass(owner, enum.Enum)):
        raise pickle.UnpicklingError(f"{name} of {owner!r} is in no request")
    return owner[name]
