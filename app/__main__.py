"""`python -m app [FILE | --demo] [--theme light|dark] [--size WxH] [--screenshot PATH]`."""

from __future__ import annotations

import sys

from app.main import main

if __name__ == "__main__":
    sys.exit(main())
