"""Backends in Python: names, packages that declare one, loading and forgetting."""

import sys

import pytest

from engine.backend.loader import Loader
from engine.backend.registry import Registry
from engine.backends.python_kind import PythonKind
from engine.errors import DeviceError
from tests.engine.plugins import write_plugin


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("splitscope_backend_slow.py", ("slow", "")),
        ("splitscope_backend_my_card-avx2.py", ("my_card", "avx2")),
        ("splitscope_backend_x-a-b.py", ("x", "a-b")),
        ("splitscope_backend_.py", None),
        ("splitscope_backend_x.pyc", None),
        ("my_splitscope_backend_x.py", None),
        ("libggml-cpu.so", None),
    ],
)
def test_a_file_name_says_backend_and_variant(name, parts):
    assert PythonKind().backend_of(name) == parts


def test_the_base_file_is_the_one_without_a_variant():
    kind = PythonKind()

    assert kind.backend_of(kind.base_file("x")) == ("x", "")


def test_a_trial_says_everything_that_a_plug_in_offers(tmp_path):
    probe = PythonKind().probe(write_plugin(tmp_path, "x", score=4, device="Card"))

    assert (probe.opened, probe.error) == (True, "")
    assert probe.symbols == ("backend_init", "backend_score", "API_VERSION")
    assert (probe.api_version, probe.score, probe.devices) == (2, 4, ("Card",))


def test_a_fault_is_told_with_its_line(tmp_path):
    path = write_plugin(tmp_path, "x", before="\n\nraise ValueError('no card')")

    assert PythonKind().probe(path).error == "it raised ValueError('no card') in line 3"


def test_two_files_of_one_name_are_two_modules(tmp_path):
    kind = PythonKind()

    regs = [kind.open(write_plugin(tmp_path / where, "x", device=where)) for where in ("a", "b")]

    modules = [type(reg).__module__ for reg in regs]
    assert len(set(modules)) == 2
    assert all(name in sys.modules for name in modules)
    for reg in regs:
        kind.close(reg)
    assert not any(name in sys.modules for name in modules)


def test_nothing_is_written_beside_a_plug_in(tmp_path):
    kind = PythonKind()
    path = write_plugin(tmp_path, "x")

    kind.probe(path)
    kind.close(kind.open(path))

    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("fault", ["raise OSError('gone')", "def backend_init(): return None"])
def test_a_plug_in_that_fails_only_here_leaves_no_module(tmp_path, fault):
    before = set(sys.modules)

    with pytest.raises(DeviceError, match=r"splitscope_backend_x\.py cannot be loaded"):
        PythonKind().open(write_plugin(tmp_path, "x", after=fault))

    assert set(sys.modules) == before


# --- packages ---------------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Return a function that installs a package with an entry point, for children too."""
    site = tmp_path / "site"
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.syspath_prepend(str(site))

    def install(value: str, **plugin):
        path = write_plugin(site / "slow_pack", "x", **plugin)
        path.rename(path.with_name("backend.py"))
        (site / "slow_pack" / "__init__.py").write_text("NAME = 'pack'\n")
        (site / "slow_pack-1.0.dist-info").mkdir()
        (site / "slow_pack-1.0.dist-info" / "METADATA").write_text("Name: slow-pack\n")
        entry = f"[splitscope.backends]\nslow = {value}\n"
        (site / "slow_pack-1.0.dist-info" / "entry_points.txt").write_text(entry)
        return path.with_name("backend.py")

    yield install
    for name in [name for name in sys.modules if name.partition(".")[0] == "slow_pack"]:
        del sys.modules[name]


def test_a_package_that_declares_a_backend_is_loaded_with_all_others(package):
    path = package("slow_pack.backend", before="from slow_pack import NAME")
    loader = Loader(Registry(), [PythonKind()])

    report = loader.load_all()

    (attempt,) = report.attempts
    assert (attempt.path, attempt.backend) == (str(path), "slow")
    assert (attempt.outcome.value, attempt.why) == ("registered", "the package slow-pack")
    assert "slow_pack.backend" in sys.modules


def test_unloading_forgets_the_modules_of_a_package(package):
    package("slow_pack.backend", before="from slow_pack import NAME")
    loader = Loader(Registry(), [PythonKind()])
    loader.load_all()

    loader.unload(loader.loaded("slow"))

    assert not [name for name in sys.modules if name.startswith("slow_pack")]


def test_a_package_is_found_without_running_it(package, tmp_path):
    path = package("slow_pack.backend")
    (path.parent / "__init__.py").write_text("1 / 0\n")

    assert PythonKind().installed() == (("slow", path, "the package slow-pack"),)


@pytest.mark.parametrize("open_file", ["", "backend.py", "__init__.py"])
def test_a_package_under_the_current_folder_must_be_own(package, tmp_path, monkeypatch, open_file):
    path = package("slow_pack.backend", before="from slow_pack import NAME")
    for own in (path, path.with_name("__init__.py")):
        own.chmod(0o644)
    if open_file:
        path.with_name(open_file).chmod(0o666)
    monkeypatch.chdir(tmp_path)

    (attempt,) = Loader(Registry(), [PythonKind()]).load_all().attempts

    what = {"": "", "backend.py": "others may write the file"}
    needs = "of __init__.py, which it needs, others may write the file"
    why = what.get(open_file, needs)
    assert attempt.reason == (f"it is not run unasked: {why}" if why else "")
    assert ("slow_pack" in sys.modules) == (not open_file)


def test_a_package_that_raises_is_a_row_of_the_report(package):
    path = package("slow_pack.backend")
    (path.parent / "__init__.py").write_text("raise RuntimeError('no driver')\n")

    report = Loader(Registry(), [PythonKind()]).load_all()

    assert "it raised RuntimeError('no driver')" in report.attempts[0].reason


def test_an_entry_point_without_a_module_is_left_out(package):
    package("nowhere.at_all")

    assert PythonKind().installed() == ()
