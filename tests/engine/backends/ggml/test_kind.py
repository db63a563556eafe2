"""Names of library files, and what becomes of libraries that are opened."""

import ctypes
import gc
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from engine import paths
from engine.backends.ggml.base import check_layout, find_base, open_beside
from engine.backends.ggml.c_api import FUNCTIONS, CApi, MissingFunctionsError
from engine.backends.ggml.kind import GgmlKind
from engine.backends.ggml.library import open_library
from engine.errors import DeviceError
from tests.engine.backends.ggml.libraries import copy_of

KIND = GgmlKind("linux")


@pytest.mark.parametrize(
    ("platform", "file_name", "found"),
    [
        ("linux", "libggml-cpu-haswell.so", ("cpu", "haswell")),
        ("linux", "libggml-cpu.so", ("cpu", "")),
        ("linux", "libggml-vulkan.so", ("vulkan", "")),
        ("linux", "libggml-base.so", None),
        ("linux", "libggml.so", None),
        ("linux", "libllama.so", None),
        ("linux", "libggml-cpu.so.0", None),
        ("linux", "libggml-cpu.dll", None),
        ("win32", "ggml-cpu-haswell.dll", ("cpu", "haswell")),
        ("win32", "libggml-cpu.so", None),
        ("darwin", "libggml-cpu-apple_m1.so", ("cpu", "apple_m1")),
        ("darwin", "libggml-metal.dylib", ("metal", "")),
    ],
)
def test_backend_and_variant_stand_in_the_file_name(platform, file_name, found):
    assert GgmlKind(platform).backend_of(file_name) == found


@pytest.mark.parametrize(
    ("platform", "file_name"),
    [
        ("linux", "libggml-cpu.so"),
        ("darwin", "libggml-cpu.dylib"),
        ("win32", "ggml-cpu.dll"),
    ],
)
def test_the_base_file_is_that_of_the_system(platform, file_name):
    assert GgmlKind(platform).base_file("cpu") == file_name


def test_the_cpu_is_looked_for_last():
    assert KIND.load_order[-1] == "cpu"
    assert len(set(KIND.load_order)) == len(KIND.load_order)


def test_a_library_that_is_opened_again_is_the_same_one(library):
    first, second = KIND.open(library), KIND.open(library)

    assert first is not second
    assert first.base is second.base
    assert first.handle == second.handle


def test_opening_two_hundred_times_leaks_nothing(library):
    KIND.open(library)
    before_files, n_threads = open_files(), threading.active_count()
    gc.collect()
    before = memory_bytes()

    for _ in range(200):
        reg = KIND.open(library)
        assert reg.devices()[0].facts.name == "ggml-CPU"
        KIND.close(reg)
    del reg
    gc.collect()

    assert open_files() == before_files
    assert threading.active_count() == n_threads
    assert memory_bytes() - before < 4 << 20


def open_files():
    """How many files this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def memory_bytes():
    """What this process has in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_a_file_that_is_no_library_is_refused_with_the_systems_words(tmp_path):
    path = tmp_path / "libggml-cpu.so"
    path.write_text("not a library")

    with pytest.raises(DeviceError, match=r"libggml-cpu\.so cannot be opened") as raised:
        KIND.open(path)
    assert "file too short" in raised.value.details


def test_a_probe_says_what_a_library_is(library):
    probe = KIND.probe(library)

    assert probe.opened
    assert probe.symbols == ("ggml_backend_score", "ggml_backend_init")
    assert probe.api_version == 2
    assert probe.score > 0
    assert probe.devices == ("ggml-CPU",)
    assert probe.error == ""


def test_a_probe_of_no_library_says_what_the_system_says(tmp_path):
    path = tmp_path / "libggml-cpu.so"
    path.write_text("not a library")

    probe = KIND.probe(path)

    assert not probe.opened
    assert "file too short" in probe.error


def test_a_second_install_with_the_same_base_is_taken(library, tmp_path):
    KIND.open(library)

    reg = KIND.open(copy_of(library, tmp_path))

    assert reg.devices()[0].facts.name == "ggml-CPU"


def test_a_second_install_with_another_base_of_that_name_is_refused(library, tmp_path):
    KIND.open(library)
    path = copy_of(library, tmp_path)
    with find_base(tmp_path).open("ab") as base:
        base.write(b"another build")

    with pytest.raises(DeviceError, match="cannot be loaded beside the ggml libraries") as raised:
        KIND.open(path)
    assert str(tmp_path) in raised.value.details


def test_the_base_beside_a_library_is_found_by_any_of_its_names(tmp_path):
    assert find_base(tmp_path) is None
    for name in ("libggml-base.so.0.25.3", "libggml-base.so.0", "libggml-cpu.so"):
        (tmp_path / name).touch()

    assert find_base(tmp_path).name == "libggml-base.so.0"


def test_a_folder_without_a_base_has_nothing_to_open(tmp_path):
    assert open_beside(tmp_path) is None


def test_functions_that_a_base_lacks_are_named(library):
    # The backend library alone would find them in its base; the C library has none of them.
    with pytest.raises(MissingFunctionsError) as raised:
        CApi(ctypes.CDLL(None))

    assert set(raised.value.names) == set(FUNCTIONS)


def test_tensors_of_another_layout_are_refused(reg, monkeypatch):
    api = CApi(ctypes.CDLL(reg.base.path))
    monkeypatch.setattr(api, "ggml_tensor_overhead", lambda: 32 + 400)

    with pytest.raises(DeviceError, match=r"laid out otherwise .* \(size\)"):
        check_layout(api, "libggml-base.so")


def test_parameters_at_another_place_are_refused(reg, monkeypatch):
    api = CApi(ctypes.CDLL(reg.base.path))
    real = api.ggml_rope_ext
    monkeypatch.setattr(
        api, "ggml_rope_ext", lambda context, x, p, f, n_dims, *rest: real(
            context, x, p, f, n_dims + 2, *rest
        )
    )  # fmt: skip

    with pytest.raises(DeviceError, match="the parameters of ROPE"):
        check_layout(api, "libggml-base.so")


def test_nothing_is_opened_by_an_import():
    code = (
        "import importlib, pkgutil, engine.backends.ggml as package\n"
        "for found in pkgutil.iter_modules(package.__path__):\n"
        "    importlib.import_module(f'{package.__name__}.{found.name}')\n"
        "print(any('ggml-' in line for line in open('/proc/self/maps')))\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        cwd=paths.repository_dir(),
    )  # fmt: skip

    assert done.stdout.strip() == "False"


def test_what_a_library_says_is_kept_and_not_printed(library, capfd):
    library_open = open_library(library)
    base = library_open.base()
    base.log.take()

    base.log.callback(4, b"half a warning\n", None)

    assert base.log.take() == "half a warning"
    assert base.log.take() == ""
    assert capfd.readouterr() == ("", "")


def test_a_library_of_an_older_contract_is_refused(library, tmp_path, monkeypatch):
    monkeypatch.setattr("engine.backends.ggml.kind.read_api_version", lambda reg: 1)
    path = Path(shutil.copy(library, tmp_path))
    shutil.copy(find_base(library.parent), tmp_path)

    with pytest.raises(DeviceError, match=r"version 1 of ggml's contract, this is 2"):
        KIND.open(path)


def test_a_base_that_is_refused_no_longer_speaks_to_us(library):
    code = (
        "import ctypes, sys\n"
        "from pathlib import Path\n"
        "from engine.backends.ggml import base\n"
        "from engine.errors import DeviceError\n"
        "def refuse(api, name):\n"
        "    raise DeviceError('of another version')\n"
        "base.check_layout = refuse\n"
        "handle = base.open_beside(Path(sys.argv[1]))\n"
        "def callback():\n"
        "    place = ctypes.c_void_p()\n"
        "    handle.ggml_log_get(ctypes.byref(place), ctypes.byref(ctypes.c_void_p()))\n"
        "    return place.value\n"
        "before = callback()\n"
        "try:\n"
        "    base._opened(handle._name)\n"
        "except DeviceError as error:\n"
        "    print(error.title, callback() == before)\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, str(library.parent)], capture_output=True, text=True,
        check=True, cwd=paths.repository_dir(),
    )  # fmt: skip

    assert done.stdout.strip() == "of another version True"


EXITS = """
#include <stdlib.h>
int ggml_backend_score(void) { %s return 1; }
void *ggml_backend_init(void) { exit(0); }
"""
EXITS_AT_ONCE = "__attribute__((constructor)) static void first(void) { exit(0); }"


@pytest.mark.parametrize(
    ("code", "opened"),
    [
        (EXITS % "", True),
        (EXITS % "exit(0);", True),
        (EXITS % "" + EXITS_AT_ONCE, False),
    ],
    ids=["in init", "in score", "as it is opened"],
)
def test_a_library_that_ends_the_process_without_a_fault_is_told(tmp_path, code, opened):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    source, path = tmp_path / "exits.c", tmp_path / "libggml-cpu.so"
    source.write_text(code)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(path), str(source)], check=True)

    probe = KIND.probe(path)

    assert probe.error == "it ended the process that tried it"
    assert probe.opened is opened


def test_the_base_beside_a_library_is_run_with_it(tmp_path):
    library = tmp_path / "libggml-cpu.so"
    assert KIND.companions(library) == ()

    (tmp_path / "libggml-base.so.0").touch()

    assert KIND.companions(library) == (tmp_path / "libggml-base.so.0",)
