"""`python -m engine`: the environment is set before numpy and numba are imported."""

from __future__ import annotations

import sys

from engine import paths


def run() -> int:
    """Set the environment, then run the command line."""
    paths.configure_environment()
    from engine.cli.main import main

    return main()


if __name__ == "__main__":
    sys.exit(run())
