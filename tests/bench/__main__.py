"""`python -m tests.bench quick` or `python -m tests.bench report [--help]`.

Each bench_*.py of this folder looks at one thing more closely, and is run by itself.
"""

from __future__ import annotations

import importlib
import sys

from engine import paths

COMMANDS = ("quick", "report")
WRONG, STOPPED = 2, 130


def main(words: list[str]) -> int:
    """Run one command; its exit status."""
    if not words or words[0] not in COMMANDS:
        print(__doc__)
        return WRONG
    # Before numba and numpy are imported; processes that are started inherit it.
    paths.configure_environment()
    module = importlib.import_module(f"tests.bench.{words[0]}")
    try:
        status: int = module.main(words[1:])
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        return STOPPED
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
