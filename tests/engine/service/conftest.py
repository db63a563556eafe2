"""A real engine process on the other end of a pipe, as the window starts it."""

import os
import pickle
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Listener
from pathlib import Path

import pytest

from engine.service.messages import Answer, EngineReady, Shutdown

ROOT = Path(__file__).parents[3]
PATIENCE_S = 120.0
KEY = b"key of the test"


class EngineChild:
    """The window's side of the pipe; answers are kept in the order they came."""

    def __init__(self, folder: Path) -> None:
        self.answers: list[Answer] = []
        self._n_seen = 0
        listener = Listener(str(folder / "engine"), authkey=KEY)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "engine", "serve"],
            cwd=ROOT,
            env=os.environ
            | {"SPLITSCOPE_ADDRESS": listener.address, "SPLITSCOPE_AUTHKEY": KEY.hex()},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.connection = listener.accept()
        listener.close()

    def send(self, *requests) -> None:
        for request in requests:
            self.connection.send_bytes(pickle.dumps(request, protocol=5))

    def wait_for(self, kind, **facts):
        """Return the next unseen answer of a kind whose fields are `facts`; skip others."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            while self._n_seen < len(self.answers):
                answer = self.answers[self._n_seen]
                self._n_seen += 1
                if isinstance(answer, kind) and is_so(answer, facts):
                    return answer
            if not self.connection.poll(max(0.0, deadline - time.monotonic())):
                raise TimeoutError(f"no {kind} {facts} among {self.kinds()}")
            self.answers.append(pickle.loads(self.connection.recv_bytes()))

    def kinds(self) -> list[str]:
        return [type(answer).__name__ for answer in self.answers]

    def end(self) -> str:
        """Wait for the process and return what it printed."""
        output, _ = self.process.communicate(timeout=PATIENCE_S)
        return output

    def close(self) -> None:
        if self.process.poll() is None:
            try:
                self.send(Shutdown())
                self.process.wait(PATIENCE_S)
            except OSError:
                self.process.kill()
        self.process.communicate()
        self.connection.close()


def is_so(answer, facts) -> bool:
    return all(getattr(answer, name) == value for name, value in facts.items())


@pytest.fixture
def child():
    """Return an engine process that is ready."""
    with tempfile.TemporaryDirectory(prefix="splitscope-test-") as folder:
        child = EngineChild(Path(folder))
        try:
            child.wait_for(EngineReady)
            yield child
        finally:
            child.close()
