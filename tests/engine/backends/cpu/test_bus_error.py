"""A mapped file that is cut while it is read: the process ends and says why."""

import subprocess
import sys

import pytest

from engine.backends.cpu.bus_error import WORDS

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows keeps mapped files")

SEVERAL_PAGES = 128 << 10

CUT_WHILE_READ = """
import mmap, sys, threading
import numpy as np
from engine.backends.cpu.backend import CpuBackend
from engine.backends.cpu.reg import create

CpuBackend(create().devices()[0], 1).prepare()
with open(sys.argv[1], "rb") as file:
    view = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
print(int(view[-1]), flush=True)
open(sys.argv[1], "r+b").truncate(0)
read = lambda: print("read", int(view[-1]))
if sys.argv[2] == "thread":
    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
else:
    read()
"""


@pytest.mark.parametrize("where", ["main", "thread"])
def test_it_is_said_on_every_thread(where, tmp_path):
    file = tmp_path / "model.gguf"
    file.write_bytes(bytes(SEVERAL_PAGES) + b"\x07")

    done = subprocess.run(
        [sys.executable, "-c", CUT_WHILE_READ, str(file), where],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.stdout == "7\n"
    assert done.stderr == WORDS
    assert done.returncode == 1
