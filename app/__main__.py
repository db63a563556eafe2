"""`python -m app [FILE | --demo] [--theme light|dark] [--size WxH] [--screenshot PATH]`.

`python -m app --headless-demo [--out FOLDER]` does the demo without a screen.
"""

from __future__ import annotations

import sys

from engine.starting import ending_quietly


def run() -> int:
    """Start the window, or the demo without one; Ctrl-C may come while that is imported."""
    if "--headless-demo" in sys.argv:
        with ending_quietly():
            from app import headless

        return headless.main([word for word in sys.argv[1:] if word != "--headless-demo"])
    with ending_quietly():
        from app.main import main

    return main()


if __name__ == "__main__":
    sys.exit(run())
