"""A device that runs out of memory, or is gone, while a model is loaded: what is left, and said."""

import pytest

from engine.core.options import Options
from engine.errors import DeviceError, Stopped
from engine.machine import devices_for, exchange_bytes
from engine.model.context import ModelContext
from engine.model.planning import make_planner
from engine.trace.recorder import Recorder
from engine.trace.records import StepKind
from tests.engine.model.limited import LimitedMachine
from tests.engine.model.made import made_file

PLAIN = ("GPU0:gpu:8192:mmap=0", "GPU1:gpu:8192:mmap=0", "CPU:cpu:16384")
PINNING = ("CUDA0:gpu:8192:preset=cuda", "CUDA1:gpu:8192:preset=cuda", "CPU:cpu:16384")
CHUNKS = 2 * (4 << 20)
"""What weights are sent through, in the first device's pinned memory."""


class Loading:
    """A made file on its way to devices with limits."""

    def __init__(self, tmp_path, lines, limits, error=None, **options):
        self.machine = LimitedMachine(lines, limits, error)
        self.file = made_file(tmp_path)
        options = {"n_ctx": 512, "mmap": False, "n_copies": 1, **options}
        self.planner = make_planner(self.file, self.machine.facts, Options(**options))
        self.progress = []
        self.stop_after = None
        devices = devices_for(self.planner, tuple(self.machine.devices.values()))
        self.context = ModelContext(
            self.file, self.planner, devices, Recorder(),
            on_plan=lambda plan: None, stop_address=0, stop_asked=self._stop_asked,
        )  # fmt: skip

    def _stop_asked(self):
        return self.stop_after is not None and len(self.progress) >= self.stop_after

    def load(self):
        """Load as a run does: what a failure leaves behind is disposed of."""
        try:
            self.context.load(self.progress.append)
        except BaseException:
            self.context.dispose()
            raise

    def refused(self):
        with pytest.raises(DeviceError) as caught, self.file:
            self.load()
        return caught.value


def weights_bytes(planner, device):
    return sum(b.n_bytes for b in planner.weights.buffers if b.device.name == device)


def cache_bytes(planner, device):
    return sum(b.n_bytes for b in planner.cache.buffers if b.device.name == device)


def needs(tmp_path, lines, device, **options):
    """Bytes that a device holds for weights, and for weights and cache."""
    made = Loading(tmp_path, lines, {}, **options)
    made.file.close()
    weights = weights_bytes(made.planner, device)
    return weights, weights + cache_bytes(made.planner, device)


@pytest.mark.parametrize("lines", [PLAIN, PINNING], ids=["plain", "pinning"])
def test_a_second_device_without_memory_for_weights_leaves_nothing_on_any(tmp_path, lines):
    second = lines[1].partition(":")[0]
    weights, _ = needs(tmp_path, lines, second)

    made = Loading(tmp_path, lines, {second: weights - 1})
    error = made.refused()

    assert made.machine.devices[lines[0].partition(":")[0]].asked >= 1
    assert made.machine.alive() == {}
    assert error.title == f"{second} has no memory for the weights of its layers."
    assert (
        f"It has {weights - 1:,} bytes free, and {weights:,} bytes were asked for; "
        in error.sentence
    )
    assert "output.weight (24,576 bytes) is the first that does not fit." in error.sentence
    assert error.sentence.endswith("The driver has no such piece.")
    assert error.hint.startswith("Put fewer layers on it (-ngl, -ts)")
    assert error.details == "CL_OUT_OF_MEMORY"


@pytest.mark.parametrize(
    ("step", "said"),
    [(0, "its cache"), (1, "the results of a batch")],
)
def test_memory_that_ends_with_the_cache_or_the_results_leaves_nothing_either(tmp_path, step, said):
    after = needs(tmp_path, PLAIN, "GPU1", tensor_split=(1, 4))[step]

    made = Loading(tmp_path, PLAIN, {"GPU1": after}, tensor_split=(1, 4))
    error = made.refused()

    assert made.machine.devices["GPU1"].asked == 1 + step
    assert made.machine.alive() == {}
    assert error.title == f"GPU1 has no memory for {said}."
    assert "It has 0 bytes free, and " in error.sentence
    assert "; the largest is " in error.sentence


@pytest.mark.parametrize(
    ("n_asked", "said"),
    [
        (0, "what members exchange"),
        (1, "its share of the weights"),
        (2, "its share of the cache"),
        (3, "the results of a batch"),
    ],
)
def test_a_member_of_joined_devices_is_named_and_the_other_keeps_nothing(tmp_path, n_asked, said):
    """It has room for the first `n_asked` of its buffers, and for nothing after them."""
    sizes = loaded_sizes(tmp_path, "GPU1", split_mode="tensor")

    made = Loading(tmp_path, PLAIN, {"GPU1": sum(sizes[:n_asked]) + 100}, split_mode="tensor")
    error = made.refused()

    assert made.machine.devices["GPU0"].asked > made.machine.devices["GPU1"].asked == n_asked
    assert made.machine.alive() == {}
    assert error.title == f"GPU1 has no memory for {said}."
    assert f"It has 100 bytes free, and {sizes[n_asked]:,} bytes were asked for" in error.sentence
    assert error.hint.startswith("Give it a smaller share (-ts), or choose a shorter context (-c)")
    names_one = "; the largest is " in error.sentence or " is the first that " in error.sentence
    assert names_one is (n_asked > 0)


def loaded_sizes(tmp_path, device, **options):
    """Bytes of each buffer of a device of PLAIN, in the order in which it gave them."""
    whole = Loading(tmp_path, PLAIN, {}, **options)
    whole.load()
    sizes = whole.machine.devices[device].sizes
    whole.context.dispose()
    whole.file.close()
    return sizes


def test_a_batch_asks_for_nothing_more_than_was_reserved(tmp_path):
    """What members exchange is there before the first of them."""
    made = Loading(tmp_path, PLAIN, {}, split_mode="tensor", n_ubatch=64)
    made.load()
    devices = made.machine.devices
    before = {name: list(device.sizes) for name, device in devices.items()}

    made.context.decode([1] * made.planner.n_ubatch, StepKind.PROMPT)
    made.context.decode([1], StepKind.TOKEN)

    assert {name: device.sizes for name, device in devices.items()} == before
    made.context.dispose()
    made.file.close()


def test_members_are_planned_to_take_what_they_take(tmp_path):
    """Weights, caches, results and the exchange, as the ledger has them."""
    made = Loading(tmp_path, PLAIN, {}, split_mode="tensor")
    made.load()

    plans = made.planner.plan_set(exchange_bytes=exchange_bytes(made.planner))

    taken = [made.machine.devices[share.device].held_bytes for share in plans.memory.shares]
    made.context.dispose()
    made.file.close()
    assert [share.needed_bytes for share in plans.memory.shares] == taken


def test_without_a_byte_on_the_first_device_nothing_was_asked_of_the_second(tmp_path):
    made = Loading(tmp_path, PLAIN, {"GPU0": 1})

    error = made.refused()

    assert error.title == "GPU0 has no memory for the weights of its layers."
    assert made.machine.alive() == {}


def test_pinned_memory_is_the_computers_whichever_device_pins_it(tmp_path):
    """All weights are the CPU's, and lie in what the first device pins."""
    planner = Loading(tmp_path, PINNING, {}, n_gpu_layers=0).planner
    (pinned,) = [b for b in planner.weights.buffers if b.buft.name == "CUDA_Host"]

    made = Loading(tmp_path, PINNING, {"CUDA0": pinned.n_bytes - 1}, n_gpu_layers=0)
    error = made.refused()

    assert made.machine.alive() == {}
    assert error.title == "The computer has no memory for the weights of its layers."
    assert error.sentence.startswith(f"CUDA0 pins it. {pinned.n_bytes:,} bytes were asked for; ")
    assert error.hint.startswith("Close programs")


def test_memory_of_the_computer_that_ends_is_told_of_the_device_it_was_for(tmp_path):
    made = Loading(tmp_path, PLAIN, {"GPU1": 1}, MemoryError("cannot allocate"))

    error = made.refused()

    assert made.machine.alive() == {}
    assert error.title == "GPU1 has no memory for the weights of its layers."
    assert error.sentence.endswith("The computer has no memory left.")
    assert error.details == "cannot allocate"


def test_the_cpu_without_memory_asks_for_programs_to_be_closed(tmp_path):
    made = Loading(tmp_path, PLAIN, {"CPU": 1})

    error = made.refused()

    assert made.machine.alive() == {}
    assert error.title == "CPU has no memory for the weights of its layers."
    assert error.hint.startswith("Close programs, or choose a shorter context (-c)")


@pytest.mark.parametrize("total", [CHUNKS // 2, CHUNKS - 1, CHUNKS // 2 - 1])
def test_no_memory_for_what_weights_are_sent_through_leaves_no_stream(tmp_path, total):
    """The weights fit, one chunk or none does too: upload's own stream and chunks go as well."""
    planner = Loading(tmp_path, PINNING, {}).planner
    own = [b.n_bytes for b in planner.weights.buffers if b.buft.name == "CUDA0"]

    made = Loading(tmp_path, PINNING, {"CUDA0": sum(own) + total})
    error = made.refused()

    assert made.machine.devices["CUDA0"].asked == 1 + total // (CHUNKS // 2)
    assert made.machine.alive() == {}
    assert error.title == "The computer has no memory for what weights are sent through."
    assert error.sentence.startswith("CUDA0 pins it. 4,194,304 bytes were asked for.")


@pytest.mark.parametrize("lines", [PLAIN, PINNING], ids=["plain", "pinning"])
def test_a_stop_in_the_middle_of_an_upload_leaves_nothing(tmp_path, lines):
    made = Loading(tmp_path, lines, {})
    made.stop_after = 5

    with pytest.raises(Stopped), made.file:
        made.load()

    assert len(made.progress) == 5
    assert made.machine.alive() == {}


@pytest.mark.parametrize("lost", ["GPU0", "GPU1", "CPU"])
@pytest.mark.parametrize("mode", ["layer", "tensor"])
def test_a_device_that_refuses_to_end_anything_does_not_keep_the_others(tmp_path, lost, mode):
    """It refuses to end its stream, and every buffer: weights, caches, results, exchange."""
    made = Loading(tmp_path, PLAIN, {}, split_mode=mode)
    made.load()
    made.machine.devices[lost].is_lost = True

    with pytest.raises(DeviceError, match=f"{lost} is lost"), made.file:
        made.context.dispose()

    assert made.machine.alive() == {}


@pytest.mark.parametrize("n_asked", [0, 1, 2, 3])
def test_a_refusal_beside_a_lost_device_leaves_nothing_either(tmp_path, n_asked):
    """One member has no memory for something, and the other does not end what it gave for it."""
    sizes = loaded_sizes(tmp_path, "GPU1", split_mode="tensor")

    made = Loading(tmp_path, PLAIN, {"GPU1": sum(sizes[:n_asked]) + 100}, split_mode="tensor")
    made.machine.devices["GPU0"].is_lost = True
    error = made.refused()

    assert error.title == "GPU0 is lost."
    assert made.machine.alive() == {}


def test_a_second_member_that_cannot_begin_leaves_no_stream_of_the_first(tmp_path, monkeypatch):
    made = Loading(tmp_path, PLAIN, {}, split_mode="tensor")

    def refuse():
        raise DeviceError("GPU1 cannot be started.")

    monkeypatch.setattr(made.machine.devices["GPU1"], "init_backend", refuse)
    error = made.refused()

    assert error.title == "GPU1 cannot be started."
    assert made.machine.alive() == {}


def test_a_loaded_model_is_counted_and_leaves_nothing(tmp_path):
    made = Loading(tmp_path, PINNING, {})

    made.load()
    alive = made.machine.alive()
    made.context.dispose()
    made.file.close()

    assert set(alive) == {"CUDA0", "CUDA1", "CPU"}
    assert made.machine.alive() == {}


# Devices that are gone.


@pytest.mark.parametrize("mode", ["layer", "tensor"])
@pytest.mark.parametrize("gone", ["GPU0", "GPU1", "CPU"])
def test_a_device_that_is_gone_is_named_before_anything_is_loaded(tmp_path, gone, mode):
    """A member of a device that joins several is missed as any other."""
    machine = LimitedMachine(PLAIN, {})
    file = made_file(tmp_path)
    planner = make_planner(file, machine.facts, Options(n_ctx=512, split_mode=mode))
    del machine.devices[gone]

    with pytest.raises(DeviceError) as caught, file:
        ModelContext(
            file, planner, machine.devices, Recorder(),
            on_plan=lambda plan: None, stop_address=0, stop_asked=lambda: False,
        )  # fmt: skip

    assert caught.value.title == f"{gone} is not there any more."
    assert caught.value.sentence == (
        f"The model was planned for it. This machine has {', '.join(machine.devices)}."
    )
    assert caught.value.hint.startswith("Bring the device back, or open the model again")
    assert all(device.asked == device.streams == 0 for device in machine.devices.values())


def test_a_device_that_a_plan_does_not_use_may_be_gone(tmp_path):
    machine = LimitedMachine(PLAIN, {})
    file = made_file(tmp_path)
    planner = make_planner(file, machine.facts, Options(n_ctx=512, devices=("GPU0",)))
    del machine.devices["GPU1"]

    context = ModelContext(
        file, planner, machine.devices, Recorder(),
        on_plan=lambda plan: None, stop_address=0, stop_asked=lambda: False,
    )  # fmt: skip

    assert context.planner is planner
    file.close()
