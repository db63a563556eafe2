"""`python -m engine`: the environment is set before numpy and numba are imported."""

from __future__ import annotations

import sys

from engine.starting import EXIT_STOPPED, ending_quietly


def run() -> int:
    """Set the environment, then run the command line; Ctrl-C may come while that is imported."""
    try:
        with ending_quietly():
            from engine import paths

            paths.configure_environment()
            from engine.cli.main import main

        return main()
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        return EXIT_STOPPED


if __name__ == "__main__":
    sys.exit(run())
