"""How a fault of a file is told: always with the place, what was found and what is allowed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.errors import GgufError

if TYPE_CHECKING:
    from pathlib import Path

DOWNLOAD_AGAIN = "The file is damaged or was not written as GGUF; download or convert it again."


@dataclass(frozen=True, slots=True)
class Source:
    """The file that is being read, as errors name it."""

    path: Path
    size: int

    def fault(self, sentence: str, *, at: int, where: str, hint: str = DOWNLOAD_AGAIN) -> GgufError:
        """An error about byte `at` of the file; `where` names the key or tensor read there."""
        return GgufError(
            f"Cannot open {self.path.name}: {sentence}",
            f"The fault is at byte {at:,} of {self.size:,}, {where}.",
            hint,
            str(self.path),
        )

    def too_short(self, n_bytes: int, *, at: int, where: str) -> GgufError:
        """The header goes on where the file ends; `n_bytes` are needed from `at` on."""
        left = max(0, self.size - at)
        return self.fault(
            f"the file ends inside its header, where {n_bytes:,} bytes are needed and {left:,} are"
            " there.",
            at=at,
            where=where,
            hint="Download the file again.",
        )


def shown(text: str) -> str:
    """`text` in quotes for a message: no line breaks, no terminal codes, at most 80 letters."""
    cut = text if len(text) <= 80 else text[:79] + "…"
    return "'" + "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in cut) + "'"
