"""The demo without a screen does the whole main job with the real model, engine and window."""

import os
import re
import struct
import subprocess
import sys

import pytest

LAST_LINE = re.compile(r"demo ok: (\d+) splits, (\d+\.\d) tokens/s, trace and picture in (.+)/")


@pytest.mark.e2e
@pytest.mark.demo
@pytest.mark.slow
def test_headless_demo_prints_plan_and_writes_trace_and_picture(tmp_path, demo_model):
    out = tmp_path / "demo-out"
    # The child finds the fetched model where this process found it.
    cache_home = demo_model.parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "app", "--headless-demo", "--out", str(out)],
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "QT_QPA_PLATFORM": "offscreen", "XDG_CACHE_HOME": str(cache_home)},
        check=False,
    )

    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stdout.splitlines()
    found = LAST_LINE.fullmatch(lines[-1])
    assert found, lines[-1]
    # Without an OpenCL device everything runs on the CPU, in one split.
    assert int(found.group(1)) >= 1
    assert any(line.startswith("936 nodes:") for line in lines)
    assert any("begins because" in line for line in lines)
    assert any(line.startswith("buffer type") for line in lines)
    assert "Traceback" not in done.stderr
    assert (out / "trace.pftrace").stat().st_size > 10_000
    assert png_size(out / "window.png") == (1600, 1000)


def png_size(path):
    """Width and height from a PNG's header."""
    header = path.read_bytes()[:24]
    assert header.startswith(b"\x89PNG\r\n\x1a\n")
    return struct.unpack(">II", header[16:24])
