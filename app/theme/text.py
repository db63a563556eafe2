"""Numbers as words: bytes, times, counts, rates. Nobody else writes a unit.

Groups of digits are parted by a narrow space, a unit by a full one; neither breaks, so that no
line ends inside a figure. A minus is U+2212; nothing measured is an en dash, never 0.
"""

from __future__ import annotations

THIN = "\u202f"
"""Between groups of digits."""

SPACE = "\u00a0"
"""Between a number and its unit."""

MINUS = "\u2212"

NOTHING = "\u2013"
"""For "not run" and "not asked"."""

KIB = 1024
MIB = 1024**2
GIB = 1024**3

_US = 1_000
_MS = 1_000_000
_S = 1_000_000_000


def count(n: float, decimals: int = 0) -> str:
    """A number with grouped digits: "1 152"."""
    text = f"{abs(n):,.{decimals}f}".replace(",", THIN)
    return MINUS + text if n < 0 and text.strip("0.") else text


def signed(n: float, decimals: int = 0) -> str:
    """A change with its sign: "+11.25"; "0" for none."""
    text = count(n, decimals)
    if not text.strip(f"{MINUS}0."):
        return "0"
    return text if n < 0 else f"+{text}"


def plural(n: int, word: str) -> str:
    """A count of things: "1 split", "321 splits"."""
    return f"{count(n)} {word}" if n == 1 else f"{count(n)} {word}s"


def sentence(text: str) -> str:
    """A reason as a sentence on one line, "" for none; what begins with a name keeps its start."""
    words = " ".join(text.split()).rstrip(".")
    first = words.partition(" ")[0].rstrip(",;:")
    start = words[:1].upper() if first.isalpha() and first.islower() else words[:1]
    return f"{start}{words[1:]}." if words else ""


def bytes_text(n: int) -> str:
    """Bytes in the unit that fits: "95.56 MiB", "5.5 KiB", "13.4 GiB"."""
    size = abs(n)
    if size < KIB:
        return f"{count(n)}{SPACE}B"
    if size < MIB:
        return f"{kib(n)}{SPACE}KiB"
    if size < GIB:
        return f"{count(n / MIB, 2)}{SPACE}MiB"
    return f"{count(n / GIB, 1)}{SPACE}GiB"


def kib(n: int) -> str:
    """Bytes in KiB without the unit: "5.5", "540"."""
    return count(n / KIB, 1 if abs(n) < 100 * KIB and n % KIB else 0)


def mib(n: int) -> str:
    """Bytes in MiB without the unit: "95.56", "13 824"."""
    return count(n / MIB, 2 if abs(n) < 1000 * MIB else 0)


def ms(ns: float) -> str:
    """A time in ms without the unit: "3.34"."""
    return count(ns / _MS, 2)


def duration_text(ns: float) -> str:
    """A time in the unit that fits: "22 µs", "3.34 ms", "433.3 ms", "1.17 s"."""
    size = abs(ns)
    if size < _US:
        return f"{count(ns)}{SPACE}ns"
    if size < _MS:
        return f"{count(ns / _US, 1 if size < 10 * _US else 0)}{SPACE}µs"
    if size < _S:
        return f"{count(ns / _MS, 2 if size < 100 * _MS else 1)}{SPACE}ms"
    if size < 60 * _S:
        return f"{count(ns / _S, 2)}{SPACE}s"
    minutes, seconds = divmod(round(ns / _S), 60)
    return f"{minutes}{SPACE}min{SPACE}{seconds}{SPACE}s"


def rate_text(tokens_per_s: float) -> str:
    """A speed: "168.5 tok/s"; a dash where nothing was measured."""
    return f"{count(tokens_per_s, 1)}{SPACE}tok/s" if tokens_per_s > 0 else NOTHING


def percent_text(share: float) -> str:
    """A share (0 to 1) with one decimal: "95.0 %"."""
    return f"{count(100 * share, 1)}{SPACE}%"
