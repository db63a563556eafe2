"""A small engine: a real process that speaks the protocol. Its first argument says how it ends."""

import os
import pickle
import sys
import time
from multiprocessing.connection import Client

from engine.core.summary import RunState
from engine.service.messages import (
    PROTOCOL,
    EngineReady,
    ExportTrace,
    Failed,
    OpenModel,
    Poll,
    RunStateChanged,
    Shutdown,
    StartRun,
    TraceArrived,
)
from engine.trace.snapshot import TraceSnapshot


def send(connection, answer) -> None:
    connection.send_bytes(pickle.dumps(answer, protocol=5))


def main(mode: str) -> None:
    if mode == "never connects":
        sys.stdout.write("no driver found\n")
        sys.exit(7)
    key = bytes.fromhex(os.environ["SPLITSCOPE_AUTHKEY"])
    if mode == "wrong key":
        key = b"guessed"
    connection = Client(os.environ["SPLITSCOPE_ADDRESS"], authkey=key)
    send(connection, EngineReady(PROTOCOL, (), ()))
    while True:
        request = pickle.loads(connection.recv_bytes())
        match request:
            case Shutdown():
                if mode == "ignores shutdown":
                    time.sleep(60)
                return
            case OpenModel():
                send(connection, Failed(request.request_id, f"Cannot open {request.path}"))
            case StartRun():
                send(connection, RunStateChanged(RunState.GENERATING))
            case Poll():
                seq = max(request.trace_seq, 5)
                send(connection, TraceArrived(TraceSnapshot(since=request.trace_seq, seq=seq)))
            case ExportTrace():
                sys.stderr.write("segfault in the driver\n")
                sys.stderr.flush()
                os._exit(3)


if __name__ == "__main__":
    main(sys.argv[1])
