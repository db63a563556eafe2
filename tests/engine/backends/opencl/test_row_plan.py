"""What each device does for products in split memory, without a device."""

from __future__ import annotations

from collections import defaultdict

from engine.backend.host_buffer import HostBufferType
from engine.backend.interface import Place
from engine.backends.opencl.row_buffer import RowBuffer, Rows
from engine.backends.opencl.row_plan import Compute, RowPlan, Send, Take
from engine.backends.opencl.tuning import CPU_TUNING
from engine.core import build
from engine.core.devices import BufferTypeFacts, BufferUsage
from engine.core.ops import Op
from engine.core.tensor import Tensor, shape4
from engine.core.types import TensorType

F32, Q8_0 = TensorType.F32, TensorType.Q8_0
HOST = HostBufferType(BufferTypeFacts("host", is_host=True))


class PaperMate:
    """A mate with places that nothing is written to; `inputs` and `results` by what asked."""

    tuning = CPU_TUNING

    def __init__(self, name):
        self.name = name
        self.input = HOST.alloc_buffer(64)
        self.results = defaultdict(lambda: HOST.alloc_buffer(64))

    def scratch_place(self, n_bytes):
        return Place(HOST.alloc_buffer(64), 0)

    def input_place(self, n_bytes):
        return Place(self.input, 0)

    def result_place(self, number, n_bytes):
        return Place(self.results[number], 0)


class Setting:
    """Devices "main", "A" and "B", and weights whose rows they have."""

    def __init__(self):
        self.mates = {name: PaperMate(name) for name in ("A", "B")}
        self.split = RowBuffer(BufferTypeFacts("main_Split"), BufferUsage.WEIGHTS, ())
        self.memory = HOST.alloc_buffer(64)
        self.places = {}

    def weight(self, *rows, k=32, tensor_type=F32):
        """A matrix in split memory: `rows` are (device, how many)."""
        pieces, start = [], 0
        for name, n in rows:
            place = Place(HOST.alloc_buffer(64), 0)
            pieces.append(Rows(name, start, start + n, place))
            start += n
        weight = leaf(tensor_type, k, start)
        self.places[weight] = self.split.add(weight, tuple(pieces))
        return weight

    def place_of(self, tensor):
        place = self.places.setdefault(tensor.base, Place(self.memory, 4096 * len(self.places)))
        return Place(place.buffer, place.offset + tensor.view_offs)

    def steps(self, *nodes):
        plan = RowPlan("main", nodes, self.place_of, self.mates.__getitem__)
        return list(plan.steps(CPU_TUNING, lambda n_bytes: Place(self.memory, 0)))

    def words(self, *nodes):
        """The steps in short: kernels with who runs them, `> A`, `< A`."""
        return [word(step) for step in self.steps(*nodes)]


def word(step):
    if isinstance(step, Send):
        return f"> {step.mate.name}"
    if isinstance(step, Take):
        return f"< {step.mate.name}"
    who = "main" if step.mate is None else step.mate.name
    kernels = " ".join(call.kernel.removeprefix("mul_") for call in step.calls)
    return f"{who}: {kernels}"


def leaf(tensor_type, *ne):
    return Tensor(tensor_type, shape4(*ne))


def test_a_product_is_sent_out_computed_everywhere_and_gathered():
    setting = Setting()
    weight = setting.weight(("main", 16), ("A", 32), ("B", 16))

    words = setting.words(build.mul_mat(weight, leaf(F32, 32)))

    assert words == [
        "> A", "> B", "A: mat_vec", "B: mat_vec", "main: mat_vec", "< A", "< B",
    ]  # fmt: skip


def test_rows_go_to_their_places_in_each_column():
    setting = Setting()
    node = build.mul_mat(setting.weight(("A", 16), ("main", 48)), leaf(F32, 32, 5, 2))

    *_, own, take = setting.steps(node)

    result = setting.place_of(node)
    assert (take.target, take.n_bytes) == (result, 16 * 4)
    assert (take.n_columns, take.pitch) == (10, 64 * 4)
    assert isinstance(own, Compute)
    written = [a for a in own.calls[0].args if isinstance(a, Place)][2]
    assert written == Place(result.buffer, result.offset + 16 * 4)


def test_activations_are_sent_once_for_all_products_that_read_them():
    setting = Setting()
    x = leaf(F32, 32)
    q, k = (build.mul_mat(setting.weight(("main", 16), ("A", 16)), x) for _ in range(2))
    between = build.scale(q, 2.0)

    words = setting.words(q, between, k)

    assert words == [
        "> A", "A: mat_vec", "main: mat_vec", "< A",
        "main: scale",
        "A: mat_vec", "main: mat_vec", "< A",
    ]  # fmt: skip


def test_results_that_wait_side_by_side_have_memory_of_their_own():
    setting = Setting()
    x = leaf(F32, 32)
    products = [build.mul_mat(setting.weight(("main", 16), ("A", 16)), x) for _ in range(3)]
    later = build.mul_mat(setting.weight(("main", 16), ("A", 16)), products[0])

    takes = [step for step in setting.steps(*products, later) if isinstance(step, Take)]

    buffers = [take.source.buffer for take in takes]
    assert len(set(buffers[:3])) == 3
    assert buffers[3] is buffers[0]


def test_activations_that_were_written_again_are_sent_again():
    setting = Setting()
    cache = leaf(F32, 32)
    x = build.cpy(leaf(F32, 32), cache)
    first, second = (build.mul_mat(setting.weight(("main", 16), ("A", 16)), x) for _ in range(2))
    again = build.cpy(first, build.view(cache, (32,)))

    words = setting.words(x, first, again, second)

    assert words.count("> A") == 2


def test_a_mate_without_rows_of_a_product_gets_its_activations_with_the_next():
    setting = Setting()
    x = leaf(F32, 32)
    small = build.mul_mat(setting.weight(("main", 16)), x)
    large = build.mul_mat(setting.weight(("main", 16), ("A", 16)), x)

    words = setting.words(small, large)

    assert words == [
        "main: mat_vec", "> A", "A: mat_vec", "main: mat_vec", "< A",
    ]  # fmt: skip


def test_every_device_rounds_activations_once_for_products_that_share_them():
    setting = Setting()
    x = leaf(F32, 32)
    q, k = (
        build.mul_mat(setting.weight(("main", 16), ("A", 16), tensor_type=Q8_0), x)
        for _ in range(2)
    )

    words = setting.words(q, build.scale(q, 2.0), k)

    assert words[1:3] == [
        "A: whole_rows_q8_0 mat_vec", "main: whole_rows_q8_0 mat_vec",
    ]  # fmt: skip
    assert words[-3:] == ["A: mat_vec", "main: mat_vec", "< A"]


def test_other_products_and_what_is_empty_stay_whole():
    setting = Setting()
    weight = setting.weight(("main", 16), ("A", 16))
    nothing = build.mul_mat(weight, leaf(F32, 32, 0))
    plain = build.mul_mat(leaf(F32, 32, 8), leaf(F32, 32))
    view = build.view(plain, (8,))
    assert view.op is Op.VIEW

    assert setting.words(nothing, plain, view) == ["main: mat_vec"]
