"""`python -m app [FILE | --demo] [--theme light|dark] [--size WxH] [--screenshot PATH]`.

`python -m app --headless-demo [--out FOLDER]` does the demo without a screen.
"""

from __future__ import annotations

import sys


def run() -> int:
    """Start the window, or the demo without one."""
    if "--headless-demo" in sys.argv:
        from app import headless

        return headless.main([word for word in sys.argv[1:] if word != "--headless-demo"])
    from app.main import main

    return main()


if __name__ == "__main__":
    sys.exit(run())
