"""The committed nano model (three layers, 1 MB), whole or with another header."""

import math
from pathlib import Path

from engine.core.types import TensorType
from engine.gguf.reader import open_gguf
from engine.gguf.writer import header_bytes
from tests.oracle import golden


def nano() -> str:
    """Return the path of the model."""
    return str(golden.model("nano-llama-f32"))


def nano_with(folder: Path, *, whole: bool = True, drop=(), more=(), **changes) -> str:
    """Return the path of a copy with other metadata; `__` in a name stands for a dot.

    A value of None takes the key away, `drop` names tensors to leave out, `more` has names and
    shapes of further ones, of zeros; `whole=False` ends the file after its header.
    """
    with open_gguf(nano()) as file:
        metadata = dict(file.metadata)
        for name, value in changes.items():
            metadata[name.replace("__", ".")] = value
        metadata = {key: value for key, value in metadata.items() if value is not None}
        types = {k: t for k, t in file.value_types.items() if k in metadata}
        types = {k: t for k, t in types.items() if metadata[k] is file.metadata[k]}
        kept = [info for info in file.tensors if info.name not in drop]
        shapes = [(info.name, info.type, info.ne) for info in kept]
        shapes += [(name, TensorType.F32, ne) for name, ne in more]
        header = header_bytes(metadata, shapes, types=types)
        data = b"".join(file.tensor_bytes(info).tobytes() for info in kept)
        data += b"".join(bytes(-len(data) % 32 + 4 * math.prod(ne)) for _, ne in more)
    path = folder / "nano-changed.gguf"
    path.write_bytes(header + data if whole else header)
    return str(path)
