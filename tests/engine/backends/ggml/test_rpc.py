"""Two ggml RPC servers on loopback as two GPUs; needs libraries with libggml-rpc."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from engine import paths
from engine.backends.ggml.kind import GgmlKind
from engine.backends.ggml.rpc import connect, takes_servers
from engine.core.devices import DeviceType
from engine.core.options import Options
from engine.errors import DeviceError
from engine.machine import Machine
from engine.session import Session
from engine.trace.records import SpanKind
from tests.engine.backends.ggml.libraries import rpc_folder
from tests.oracle import golden
from tests.oracle.test_score import NANO, SMOLLM2, assert_bars_hold

SERVER = Path(__file__).with_name("serve_rpc.py")
GIVE_UP_S = 60


def free_ports(count):
    """Ports that nobody listens on now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def wait_until_it_answers(server, port):
    deadline = time.monotonic() + GIVE_UP_S
    while not answers(port):
        assert server.poll() is None, f"the server ended with {server.returncode}"
        assert time.monotonic() < deadline, f"the server does not answer within {GIVE_UP_S} s"
        time.sleep(0.05)


@pytest.fixture(scope="session")
def folder():
    return rpc_folder()


@pytest.fixture(scope="session")
def rpc(folder):
    """The family of libggml-rpc."""
    kind = GgmlKind()
    return kind.open(folder / kind.base_file("rpc"))


@pytest.fixture(scope="session")
def endpoints(folder):
    """Addresses of two servers, each with one CPU."""
    ports = free_ports(2)
    environment = os.environ | {"PYTHONPATH": str(paths.repository_dir())}
    servers = [
        subprocess.Popen(
            [sys.executable, str(SERVER), str(folder), str(port)],
            env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        for port in ports
    ]  # fmt: skip
    for server, port in zip(servers, ports, strict=True):
        wait_until_it_answers(server, port)
    yield [f"127.0.0.1:{port}" for port in ports]
    for server in servers:
        server.kill()
        server.wait()


@pytest.fixture(scope="session")
def families(rpc, endpoints):
    return [connect(rpc, endpoint) for endpoint in endpoints]


@pytest.fixture
def session(families):
    """A session whose machine has both servers' devices."""
    session = Session(backends="cpu")
    for family in families:
        session._machine.loader.registry.register(family)
    yield session
    session.close()


@pytest.fixture
def names(families):
    return tuple(family.devices()[0].facts.name for family in families)


def test_a_family_of_servers_has_no_devices_of_its_own(rpc):
    assert takes_servers(rpc)
    assert rpc.devices() == ()
    assert rpc.name == "RPC"


def test_a_server_is_a_gpu_of_the_family_rpc(families, endpoints):
    for family, endpoint in zip(families, endpoints, strict=True):
        facts = family.devices()[0].facts
        assert family.name == f"RPC[{endpoint}]"
        assert (facts.type, facts.reg) == (DeviceType.GPU, "RPC")
        assert facts.stream_name == facts.buft.name == f"RPC0[{endpoint}]"
        assert facts.caps.asynchronous
        assert facts.caps.events
        assert not facts.copies_async
        assert facts.memory_free > 0


def test_an_address_where_nobody_answers_is_an_error_for_people(rpc):
    (port,) = free_ports(1)

    with pytest.raises(DeviceError, match=f"server 127.0.0.1:{port} cannot be used") as raised:
        connect(rpc, f"127.0.0.1:{port}")
    assert "Failed to connect" in raised.value.details


def test_a_family_without_servers_says_so(folder):
    kind = GgmlKind()
    cpu = kind.open(folder / kind.base_file("cpu"))

    with pytest.raises(DeviceError, match="knows no servers"):
        connect(cpu, "127.0.0.1:50052")


def test_a_machine_has_the_devices_of_the_servers_it_is_given(folder, endpoints):
    machine = Machine(backends="cpu", load=[folder], rpc=[*endpoints, endpoints[0]])

    devices = [device.facts for device in machine.devices() if device.facts.reg == "RPC"]

    assert [facts.description for facts in devices] == endpoints
    machine.check_loaded()
    places = [s.origin.place for s in machine.summaries() if s.reg == "RPC"]
    assert places == endpoints


def test_a_buffer_of_a_server_keeps_what_is_written(families):
    device = families[0].devices()[0]
    buffer = device.buffer_type().alloc_buffer(1 << 16)
    data = os.urandom(1 << 16)
    out = bytearray(1 << 16)

    buffer.set_tensor(0, np.frombuffer(data, np.uint8))
    buffer.get_tensor(0, np.frombuffer(out, np.uint8))

    assert out == data
    assert buffer.host is None
    buffer.release()


def splits_of(session):
    plan = session._running._loaded.context.last_plan
    return [plan.backends[split.backend_id].device.name for split in plan.trace.cut.splits]


def test_all_layers_on_two_servers_are_three_splits_in_a_pipeline(session, names):
    session.open(str(golden.model("nano-llama-f32")))
    session.options = Options(devices=names, n_ctx=512)

    for prompt in NANO.prompts:
        assert_bars_hold(session, NANO, prompt)

    assert splits_of(session) == ["CPU", *names]
    assert session._running._loaded.context.last_plan.n_copies == 4


def test_half_of_the_layers_on_a_server_keep_the_bars(session, names):
    session.open(str(golden.model("nano-llama-f32")))
    session.options = Options(devices=names[:1], n_ctx=512, n_gpu_layers=NANO.half)

    for prompt in NANO.prompts:
        assert_bars_hold(session, NANO, prompt)

    assert splits_of(session) == ["CPU", names[0]]


def test_every_split_and_copy_is_recorded_once(session, names):
    session.open(str(golden.model("nano-llama-f32")))
    session.options = Options(devices=names, n_ctx=512)
    n_steps = 3

    session.run("hello", n_steps)

    spans = session.snapshot().of_kind(SpanKind.SPLIT)
    per_step = {step: sum(spans["step"] == step) for step in set(spans["step"].tolist())}
    assert set(per_step.values()) == {3}
    assert (spans["end_ns"] >= spans["start_ns"]).all()


@pytest.mark.demo
@pytest.mark.slow
def test_smollm2_keeps_the_bars_on_two_servers(session, names, demo_model):
    session.open(str(demo_model))
    session.options = Options(devices=names, n_ctx=512)

    for prompt in SMOLLM2.prompts:
        assert_bars_hold(session, SMOLLM2, prompt)

    assert splits_of(session) == ["CPU", *names]
