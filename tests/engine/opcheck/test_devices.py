"""Every device that is here is right about all that it says it can."""

import pytest

from engine.backend.interface import BackendReg
from engine.backends.blas.reg import create as create_blas
from engine.backends.cpu.reg import create as create_cpu
from engine.backends.opencl.reg import create as create_opencl
from engine.core import build
from engine.core.op_matrix import OpState
from engine.core.ops import Op
from engine.core.tensor import Tensor, shape4
from engine.core.types import TensorType
from engine.opcheck.apart import ApartSubject, Home
from engine.opcheck.built_in import built_in_cases
from engine.opcheck.cases import case_of
from engine.opcheck.prepared import Exercise, nodes_in_a_run, started
from engine.opcheck.stream import OwnStream
from tests.engine.backends.ggml.libraries import cpu_library
from tests.engine.opcheck.conftest import TEMPLATE

N_THREADS = 2
CASES = [counted.case for counted in built_in_cases()]


def own_stream(reg: BackendReg) -> OwnStream:
    if not reg.devices():
        pytest.skip(f"OpenCL: {reg.unavailable()[0].reason}")
    return OwnStream(reg.devices()[0], N_THREADS)


def faults(verdicts, cases=CASES) -> dict[str, str]:
    return {
        f"{case.op_desc} {case.type} {case.sources}": verdict.reason
        for case, verdict in zip(cases, verdicts, strict=True)
        if verdict.is_fault
    }


def n_right(verdicts) -> int:
    return sum(verdict.state is OpState.OK for verdict in verdicts)


def test_the_cpu_computes_every_case_and_is_right(check):
    verdicts = check(own_stream(create_cpu()), *CASES)

    assert faults(verdicts) == {}
    assert n_right(verdicts) == len(CASES)


@pytest.mark.gpu
@pytest.mark.slow
def test_opencl_is_right_about_all_that_it_supports(check):
    verdicts = check(own_stream(create_opencl()), *CASES)

    assert faults(verdicts) == {}
    assert n_right(verdicts) > len(CASES) / 2


def test_blas_multiplies_and_nothing_else(check):
    verdicts = check(own_stream(create_blas()), *CASES)

    right = {case.op for case, v in zip(CASES, verdicts, strict=True) if v.state is OpState.OK}
    assert faults(verdicts) == {}
    assert right == {Op.MUL_MAT}


def test_the_template_is_right_in_a_process_of_its_own(check):
    subject = ApartSubject(Home("python", TEMPLATE, "Slow", N_THREADS), lambda: False)

    verdicts = check(subject, *CASES)

    right = {case.op for case, v in zip(CASES, verdicts, strict=True) if v.state is OpState.OK}
    assert faults(verdicts) == {}
    assert {Op.ADD, Op.MUL_MAT, Op.RMS_NORM, Op.UNARY, Op.GLU} <= right


def test_a_real_ggml_library_is_right_in_a_process_of_its_own(check):
    subject = ApartSubject(Home("ggml", cpu_library(), "ggml-CPU", N_THREADS), lambda: False)

    verdicts = check(subject, *CASES)

    assert faults(verdicts) == {}
    assert n_right(verdicts) > 0.95 * len(CASES)


def test_a_short_operation_is_timed_many_times_in_a_run_and_a_long_one_once():
    device = create_cpu().devices()[0]
    backend = started(device, 1)
    short, long = Tensor(TensorType.F32, shape4(64)), Tensor(TensorType.F32, shape4(1 << 24))

    n_nodes = [
        nodes_in_a_run(device.buffer_type(), backend, Exercise(case_of(build.scale(x, 2.0))))
        for x in (short, long)
    ]
    backend.dispose()

    assert n_nodes[0] > 8
    assert n_nodes[1] == 1


def test_speed_is_measured_again_and_again(check):
    (case,) = [c for c in CASES if c.op is Op.MUL_MAT and c.sources[0].ne[0] == 2048][:1]

    (verdict,) = check(own_stream(create_cpu()), case, with_speed=True)

    speed = verdict.speed
    assert verdict.state is OpState.OK
    assert speed.n_runs >= 3
    assert speed.gflop_per_s == pytest.approx(case.n_flops / speed.median_ns)
    assert speed.gb_per_s == pytest.approx(case.n_bytes / speed.median_ns)
    assert speed.median_ns > 0
