"""What can go wrong, as one tree.

    SplitscopeError
      UserError               shown to people: title, sentence, hint
        GgufError             a file that is not a sound GGUF: offset, key or tensor, found, allowed
        ModelError            a model, or what was asked of it, cannot be run or planned
        DeviceError           a device or driver refused: device, kernel, build log
          MemoryRefusedError  it has no memory: what it has, how much was wanted, what for
        PlacementError        no backend can take an operation, or options cannot be met
        TextError             a chat template cannot be used
        ExportError           a trace or picture cannot be written
        FetchError            a model cannot be fetched
      Stopped                 a person asked to stop; carries nothing, loses nothing

Developer errors are assertions or TypeErrors with both operands; they are not in this tree.
"""

from __future__ import annotations


class SplitscopeError(Exception):
    """The root; never raised itself."""


class UserError(SplitscopeError):
    """An error a person can act on.

    `title` says what happened to what, `sentence` why, `hint` what to do next, `details` is
    copyable text such as a build log. Private data (paths) come last in each.
    """

    def __init__(self, title: str, sentence: str = "", hint: str = "", details: str = "") -> None:
        super().__init__(title, sentence, hint, details)
        self.title = title
        self.sentence = sentence
        self.hint = hint
        self.details = details

    def __str__(self) -> str:
        return " ".join(part for part in (self.title, self.sentence, self.hint) if part)


class GgufError(UserError):
    """A file that is not a sound GGUF."""


class ModelError(UserError):
    """A model, or what was asked of it, cannot be run or planned."""


class DeviceError(UserError):
    """A device or its driver refused."""


class MemoryRefusedError(DeviceError):
    """A device has no memory for something."""


class PlacementError(UserError):
    """No backend can take an operation, or options cannot be met."""


class TextError(UserError):
    """A chat template cannot be used."""


class ExportError(UserError):
    """A trace or a picture cannot be written."""


class FetchError(UserError):
    """A model cannot be fetched."""


class Stopped(SplitscopeError):
    """A person asked to stop."""
