"""Plug-ins with a fault each: it is found, told in words, and is never the end of the check."""

import sys
import tempfile
import time

import pytest

from engine.backends.python_kind import PythonKind
from engine.core import build
from engine.core.op_matrix import OpState
from engine.core.ops import UnaryOp
from engine.core.tensor import Tensor, shape4
from engine.core.types import TensorType
from engine.errors import Stopped
from engine.opcheck import apart
from engine.opcheck.apart import ApartSubject, Home
from engine.opcheck.cases import case_of
from engine.opcheck.stream import OwnStream

F32 = TensorType.F32
X, ROW = Tensor(F32, shape4(64, 5)), Tensor(F32, shape4(64))
SCALE = case_of(build.scale(X, 2.0, 1.0))
ADD = case_of(build.add(X, ROW))
NORM = case_of(build.rms_norm(X, 1e-5))
SILU = case_of(build.unary(X, UnaryOp.SILU))

COMPUTE = "    sources = [values(source, place_of(source)) for source in node.src]\n"
SCALES = "        out[:] = x * p.scale + p.bias\n"


@pytest.fixture
def kind():
    return PythonKind()


@pytest.fixture
def here(kind, changed_template):
    """The changed template's device in this process."""
    opened = []

    def loaded(*changes):
        opened.append(kind.open(changed_template(*changes)))
        return OwnStream(opened[-1].devices()[0], 1)

    yield loaded
    for reg in opened:
        kind.close(reg)


@pytest.fixture
def elsewhere(changed_template):
    """The changed template's device in a process of its own."""

    def loaded(*changes, stop_asked=lambda: False):
        return ApartSubject(Home("python", changed_template(*changes), "Slow", 1), stop_asked)

    return loaded


def test_a_wrong_operation_is_found_and_the_others_are_right(here, check):
    subject = here((SCALES, "        out[:] = x * p.scale\n"))

    wrong, *others = check(subject, SCALE, ADD, NORM, SILU)

    assert wrong.state is OpState.WRONG
    assert wrong.error > 0.01
    assert "allowed is 1e-07; farthest off at" in wrong.reason
    assert [verdict.state for verdict in others] == [OpState.OK] * 3


def test_what_it_raises_is_a_row_and_the_next_case_is_computed(here, check):
    subject = here((SCALES, "        raise RuntimeError('no such kernel')\n"))

    failed, right = check(subject, SCALE, ADD)

    assert failed.state is OpState.FAILED
    assert failed.reason == "it raised RuntimeError('no such kernel')"
    assert failed.error is None
    assert right.state is OpState.OK


def test_nan_is_told_as_such(here, check):
    subject = here((SCALES, f"{SCALES}        out[0, 0, 3, 7] = np.nan\n"))

    (verdict,) = check(subject, SCALE)

    assert verdict.state is OpState.WRONG
    assert verdict.reason == "1 of 320 elements, the first at [7, 3, 0, 0], are NaN"


def test_an_element_that_it_leaves_out_is_found(here, check):
    subject = here((SCALES, "        out[..., :-1] = (x * p.scale + p.bias)[..., :-1]\n"))

    (verdict,) = check(subject, SCALE)

    assert verdict.reason == "5 of 320 elements, the first at [63, 0, 0, 0], are NaN"


def test_a_claim_that_it_cannot_keep_is_found(here, check):
    subject = here(("Op.RMS_NORM, Op.MUL_MAT, UnaryOp.SILU", "Op.RMS_NORM, Op.MUL_MAT, 'GELU'"))

    gelu, silu = check(subject, case_of(build.unary(X, UnaryOp.GELU)), SILU)

    assert gelu.state is OpState.WRONG
    assert silu.state is OpState.NOT_SUPPORTED


def test_rules_that_raise_are_told(here, check):
    subject = here(
        (
            "        first, *others = tensor.src\n",
            "        (first,) = tensor.src\n        others = ()\n",
        )
    )

    failed, right = check(subject, ADD, SCALE)

    assert failed.state is OpState.FAILED
    assert "it raised ValueError" in failed.reason
    assert right.state is OpState.OK


def test_rules_that_refuse_their_own_memory_are_told(here, check):
    subject = here(("bufts=frozenset({MEMORY.name})", "bufts=frozenset({'CPU'})"))

    (verdict,) = check(subject, ADD)

    assert verdict.state is OpState.FAILED
    assert verdict.reason == "its rules refuse its own memory, Slow"


def test_a_write_behind_the_result_is_found(here, check):
    behind = (
        "        place = place_of(node)\n"
        "        place.buffer.host[place.offset + node.n_bytes + 3] = 1\n"
    )
    subject = here((SCALES, SCALES + behind))

    (verdict,) = check(subject, SCALE)

    assert verdict.state is OpState.WRONG
    assert verdict.reason == "it wrote outside of the result (+3 bytes from its end)"


def test_a_source_that_is_changed_is_found(here, check):
    subject = here((SCALES, f"{SCALES}        sources[0][:] = 0\n"))

    (verdict,) = check(subject, SCALE)

    assert verdict.state is OpState.WRONG
    assert verdict.reason.startswith("it changed its source 0 (byte ")


LAZY = """
WAITING = []


class LazyMemory(HostBufferType):
    def alloc_buffer(self, size, usage=None):
        buffer = super().alloc_buffer(size)
        read = buffer.get_tensor

        def get_tensor(offset, out):
            while WAITING:
                time.sleep(0.01)
                compute(*WAITING.pop(0))
            return read(offset, out)

        buffer.get_tensor = get_tensor
        return buffer


class SlowDevice(Device):
"""


def test_the_time_of_a_device_that_only_reading_waits_for_is_measured(here, check):
    subject = here(
        ("class SlowDevice(Device):\n", LAZY),
        ("HostBufferType(MEMORY)", "LazyMemory(MEMORY)"),
        (
            "compute(graph.nodes[i_node], graph.place_of)",
            "WAITING.append((graph.nodes[i_node], graph.place_of))",
        ),
    )

    (verdict,) = check(subject, SCALE, with_speed=True)

    assert verdict.state is OpState.OK
    assert verdict.speed.median_ns >= 10_000_000


# --- in a process of its own ------------------------------------------------------------------


ABORTS = (
    SCALES,
    "        import os, sys\n"
    "        print('out of luck', file=sys.stderr, flush=True)\n"
    "        os.abort()\n",
)


def test_a_crash_is_a_row_and_the_next_case_is_computed(elsewhere, check):
    failed, right = check(elsewhere(ABORTS), SCALE, ADD)

    assert failed.state is OpState.FAILED
    assert failed.reason == "it ended the process: SIGABRT"
    assert "out of luck" in failed.details
    assert right.state is OpState.OK


def test_what_the_library_prints_is_not_taken_for_an_answer(elsewhere, check):
    subject = elsewhere((COMPUTE, f"    print('{{}}', flush=True)\n{COMPUTE}"))

    assert [verdict.state for verdict in check(subject, SCALE, ADD)] == [OpState.OK] * 2


def test_a_device_that_ends_every_process_is_left_alone(elsewhere, check, monkeypatch):
    monkeypatch.setattr(apart, "MOST_ENDS", 2)

    verdicts = check(elsewhere(ABORTS), *[case_of(build.scale(X, n)) for n in (1.0, 2.0, 3.0)])

    states = [verdict.state for verdict in verdicts]
    assert states == [OpState.FAILED, OpState.FAILED, OpState.NOT_CHECKED]
    assert verdicts[-1].reason == "it ended 2 processes before"


def test_a_case_that_never_ends_has_failed(elsewhere, check, monkeypatch):
    monkeypatch.setattr(apart, "LIMIT_S", 3.0)
    subject = elsewhere((SCALES, "        time.sleep(1000)\n"))

    right, failed = check(subject, ADD, SCALE)

    assert right.state is OpState.OK
    assert failed.reason == "it gave no answer within 3 s"


def test_a_person_may_stop_while_it_computes(elsewhere):
    started = time.monotonic()
    subject = elsewhere(
        (SCALES, "        time.sleep(1000)\n"), stop_asked=lambda: time.monotonic() - started > 0.5
    )
    from engine.opcheck.prepared import Exercise

    with pytest.raises(Stopped):
        subject.verdict(Exercise(SCALE), with_speed=False)
    subject.close()


def test_a_library_that_is_gone_fails_every_case(check, tmp_path):
    home = Home("python", tmp_path / "splitscope_backend_gone.py", "Slow", 1)

    (verdict,) = check(ApartSubject(home, lambda: False), SCALE)

    assert verdict.state is OpState.FAILED
    assert verdict.reason.startswith("The plug-in splitscope_backend_gone.py cannot be loaded.")


def test_a_process_that_cannot_be_started_leaves_the_case_unchecked(elsewhere, check, monkeypatch):
    subject = elsewhere()
    with monkeypatch.context() as gone:
        gone.setattr(sys, "executable", "/nowhere/python")
        (unchecked,) = check(subject, SCALE)
    (right,) = check(subject, SCALE)

    assert unchecked.state is OpState.NOT_CHECKED
    assert unchecked.reason.startswith("no process to check it in can be started: ")
    assert "No such file" in unchecked.reason
    assert right.state is OpState.OK


def test_a_full_disk_leaves_the_case_unchecked(elsewhere, check, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))

    (unchecked,) = check(elsewhere(), SCALE)

    assert unchecked.state is OpState.NOT_CHECKED


def test_a_bundle_says_that_it_cannot_check_loaded_devices(elsewhere, check, monkeypatch):
    monkeypatch.setattr(sys, "_MEIPASS", "/unpacked", raising=False)

    (unchecked,) = check(elsewhere(), SCALE)

    assert unchecked.state is OpState.NOT_CHECKED
    assert "a bundle of Splitscope cannot start one" in unchecked.reason
