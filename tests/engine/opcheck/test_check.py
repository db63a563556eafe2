"""Checking all cases on all devices: in order, told about, stopped with what was found."""

import pytest

from engine.backend.registry import Registry
from engine.backends.cpu.reg import create as create_cpu
from engine.backends.ggml.kind import GgmlKind
from engine.backends.ggml.reg import GgmlReg
from engine.core import build
from engine.core.load_report import Linkage, Origin
from engine.core.op_matrix import OpState
from engine.core.tensor import Tensor, shape4
from engine.core.types import TensorType
from engine.errors import DeviceError, UserError
from engine.opcheck.apart import ApartSubject
from engine.opcheck.built_in import built_in_cases
from engine.opcheck.cases import CountedCase, case_of
from engine.opcheck.check import check_ops, chosen
from engine.opcheck.stream import OwnStream
from engine.opcheck.subjects import home_of, subjects_of
from tests.engine.backends.ggml.libraries import cpu_library

X = Tensor(TensorType.F32, shape4(64, 5))
CASES = [CountedCase(case_of(build.scale(X, n)), 2, 1) for n in (1.0, 2.0, 3.0)]


@pytest.fixture
def cpu():
    return create_cpu()


def test_progress_names_the_operation_the_device_and_how_many(cpu):
    told = []

    matrix = check_ops(
        [OwnStream(cpu.devices()[0], 1)], CASES, with_speed=False, on_progress=told.append,
        stop_asked=lambda: False,
    )  # fmt: skip

    assert [(p.label, p.done, p.total) for p in told] == [
        ("SCALE f32 on CPU", i, 3) for i in range(3)
    ]
    assert [(row.n_prompt, row.n_token) for row in matrix.rows] == [(2, 1)] * 3
    assert not matrix.is_stopped


def test_a_check_that_is_stopped_keeps_what_it_found(cpu):
    told = []

    matrix = check_ops(
        [OwnStream(cpu.devices()[0], 1)], CASES, with_speed=False, on_progress=told.append,
        stop_asked=lambda: len(told) == 2,
    )  # fmt: skip

    states = [verdict.state for verdict in matrix.verdicts("CPU")]
    assert states == [OpState.OK, OpState.OK, OpState.NOT_CHECKED]
    assert matrix.is_stopped


def test_cases_are_chosen_by_names_in_any_capitals():
    every = built_in_cases()

    silu = chosen(every, "silu", "")
    unary = chosen(every, "UNARY", "")
    q4_k = chosen(every, "mul_mat", "q4_k")

    assert {each.case.op_desc for each in silu} == {"SILU"}
    assert set(silu) < set(unary)
    assert {each.case.type for each in q4_k} == {"q4_K"}
    assert chosen(every, "", "") == every


@pytest.mark.parametrize(
    ("op", "kind", "title", "hint"),
    [
        ("MUL_MATT", "", "There is no operation MUL_MATT.", "Did you mean MUL_MAT?"),
        ("", "q4k", "There is no type q4k.", "Did you mean q4_k?"),
        ("ROPE", "q4_K", "There is no case of ROPE q4_k.", "Leave out --op or --type"),
    ],
)
def test_what_there_is_not_is_refused_with_what_is_near(op, kind, title, hint):
    with pytest.raises(UserError) as caught:
        chosen(built_in_cases(), op, kind)

    assert caught.value.title == title
    assert caught.value.hint.startswith(hint)


def origin(linkage, place, *, backend="cpu"):
    return Origin(backend, linkage, str(place), "", "", "", "", 2, kind="python")


@pytest.fixture
def subjects(cpu):
    def made(linkage, place, *, names=(), in_process=False):
        registry = Registry()
        registry.register(cpu, origin(linkage, place))
        return subjects_of(
            registry, names, n_threads=1, in_process=in_process, stop_asked=lambda: False
        )

    return made


def test_what_came_with_splitscope_is_checked_here_and_what_was_loaded_apart(subjects, tmp_path):
    (own,) = subjects(Linkage.STATIC, "engine.backends.cpu.reg")
    (loaded,) = subjects(Linkage.DYNAMIC, tmp_path / "x.py")
    (wanted_here,) = subjects(Linkage.DYNAMIC, tmp_path / "x.py", in_process=True)

    assert isinstance(own, OwnStream)
    assert isinstance(loaded, ApartSubject)
    assert isinstance(wanted_here, OwnStream)


def test_a_server_s_device_is_found_again_through_the_library_that_talks_to_it(tmp_path):
    opened, path = GgmlKind().open(cpu_library()), tmp_path / "libggml-rpc.so"
    reg = GgmlReg(opened.base, opened.handle, path, endpoint="127.0.0.1:50052")
    registry = Registry()
    registry.register(reg, origin(Linkage.DYNAMIC, "127.0.0.1:50052", backend="rpc"))

    home = home_of(registry, reg.devices()[0], 1)

    assert (home.path, home.endpoint) == (path, "127.0.0.1:50052")


def test_a_plug_in_that_is_called_rpc_is_loaded_from_its_own_file(cpu, tmp_path):
    cpu.path = tmp_path / "something_else.py"
    registry = Registry()
    registry.register(cpu, origin(Linkage.DYNAMIC, tmp_path / "x.py", backend="rpc"))

    home = home_of(registry, cpu.devices()[0], 1)

    assert (home.path, home.endpoint) == (tmp_path / "x.py", "")


def test_a_device_is_named_once_and_must_be_there(subjects):
    assert len(subjects(Linkage.STATIC, "", names=("cpu", "CPU"))) == 1

    with pytest.raises(DeviceError, match="There is no device GPU"):
        subjects(Linkage.STATIC, "", names=("GPU",))
