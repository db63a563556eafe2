"""What `make run` and `make test` decide, apart from the installing itself."""

import ast
import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "packaging"

DEBIAN_12 = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\nVERSION_ID="12"\n'
UBUNTU_22 = 'NAME="Ubuntu"\nVERSION_ID="22.04"\nID=ubuntu\nID_LIKE=debian\n'
UBUNTU_24 = 'NAME="Ubuntu"\nVERSION_ID="24.04"\nID=ubuntu\nID_LIKE=debian\n'


@pytest.fixture
def checkout(tmp_path):
    """A checkout with only what packaging needs, in a folder whose name has spaces."""
    root = tmp_path / "my  check out"
    shutil.copytree(PACKAGING, root / "packaging", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, root / name)
    return root


@pytest.fixture
def packaging(checkout, monkeypatch):
    """The modules of packaging/, loaded from that checkout."""
    monkeypatch.syspath_prepend(str(checkout / "packaging"))
    names = ("run", "checkout", "machine")
    yield tuple(importlib.import_module(name) for name in names)
    for name in names:
        sys.modules.pop(name, None)


def command(
    checkout: Path, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments,
        cwd=checkout.parent,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def fake_python(folder: Path, text: str) -> Path:
    """Make a program that stands where a Python would."""
    folder.mkdir(exist_ok=True)
    path = folder / "python3.13"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("path", sorted(PACKAGING.glob("*.py")), ids=lambda p: p.name)
def test_an_old_python_can_read_the_scripts_and_say_that_it_is_too_old(path):
    ast.parse(path.read_text(), feature_version=(3, 8))


@pytest.mark.parametrize(
    ("os_release", "expected"),
    [
        (DEBIAN_12, ("debian", 12.0)),
        (UBUNTU_24, ("ubuntu", 24.04)),
        ("ID=arch\n", ("arch", 0.0)),
        ("", ("", 0.0)),
    ],
)
def test_the_distribution_is_read_from_os_release(packaging, os_release, expected):
    _, _, machine = packaging

    assert machine.distribution(os_release) == expected


@pytest.mark.parametrize(
    ("os_release", "glib"),
    [
        (DEBIAN_12, "libglib2.0-0"),
        (DEBIAN_12.replace("12", "13"), "libglib2.0-0t64"),
        (UBUNTU_22, "libglib2.0-0"),
        (UBUNTU_24, "libglib2.0-0t64"),
    ],
)
def test_packages_are_named_as_the_release_names_them(packaging, os_release, glib):
    _, _, machine = packaging
    names = machine.package_names(machine.QT_PACKAGES, machine.distribution(os_release))

    assert [n for n in names if "glib" in n] == [glib]
    assert len(names) == len(machine.QT_PACKAGES)


def test_ubuntu_22_is_told_how_to_get_a_newer_python(packaging):
    _, _, machine = packaging
    text = machine.how_to_get_python(machine.distribution(UBUNTU_22))

    assert "sudo apt install python3.11 python3.11-venv" in text
    assert "make run PYTHON=python3.11" in text


def test_a_python_that_does_not_start_is_passed_over(packaging, tmp_path, monkeypatch):
    _, _, machine = packaging
    broken = fake_python(tmp_path / "bin", "echo no such version >&2; exit 127")
    monkeypatch.setenv("PATH", str(broken.parent))

    assert machine.newer_python() is None


def test_a_newer_python_beside_the_old_one_is_found(packaging, tmp_path, monkeypatch):
    _, _, machine = packaging
    good = fake_python(tmp_path / "bin", "echo 3 13")
    monkeypatch.setenv("PATH", str(good.parent))

    assert machine.newer_python() == str(good)


def test_a_program_that_aborts_is_an_answer_and_not_a_crash(packaging):
    _, _, machine = packaging
    answer, error = machine.probe(
        sys.executable, "import os, sys; print('lost'); os.write(2, b'why'); os.abort()", {}
    )

    assert answer == []
    assert error.startswith("why")


def test_what_a_driver_prints_before_is_not_the_answer(packaging):
    _, _, machine = packaging
    answer, error = machine.probe(
        sys.executable, "import os; os.write(2, b'driver says hello\\n'); print('one')", {}
    )

    assert answer == ["one"]
    assert error == ""


def test_the_stamp_no_longer_holds_once_pyproject_changes(packaging):
    _, checkout, _ = packaging
    checkout.PYTHON.parent.mkdir(parents=True)
    checkout.PYTHON.touch()
    checkout.STAMP.write_text(f'{{"key": "{checkout.stamp_key()}", "extras": []}}')

    before = checkout.stamp()
    (checkout.ROOT / "pyproject.toml").write_text("[project]\n")

    assert before is not None
    assert checkout.stamp() is None


def test_an_installation_that_was_cut_off_is_not_taken_for_a_whole_one(packaging):
    _, checkout, _ = packaging
    checkout.PYTHON.parent.mkdir(parents=True)
    checkout.PYTHON.touch()
    checkout.STAMP.write_text(f'{{"key": "{checkout.stamp_key()}", "extras": []}}')

    checkout.UNFINISHED.touch()

    assert checkout.stamp() is None


@pytest.mark.parametrize(
    ("environment", "worth_trying"),
    [
        ({}, False),
        ({"DISPLAY": ":0"}, True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, True),
        ({"DISPLAY": ":0", "SPLITSCOPE_HEADLESS": "1"}, False),
    ],
)
def test_a_window_is_tried_where_there_may_be_a_screen(packaging, environment, worth_trying):
    run, _, _ = packaging

    assert run.may_have_screen(environment) is worth_trying


def test_a_dead_display_is_not_a_screen(packaging, monkeypatch):
    run, _, _ = packaging
    monkeypatch.setattr(run, "PYTHON", Path(sys.executable))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("QT_")}

    state = run.look_at_qt({**environment, "DISPLAY": ":987", "WAYLAND_DISPLAY": ""})

    assert state.screen == ""
    assert state.version.startswith("6.")


@pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")
def test_make_alone_prints_the_commands_from_any_folder(checkout):
    makefile = str(checkout / "Makefile")
    done = command(checkout, "make", "-f", makefile, f"PYTHON={sys.executable}")

    assert done.returncode == 0
    assert "make run " in done.stdout


@pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")
def test_make_says_what_to_install_where_there_is_no_python(checkout):
    done = command(checkout, "make", "-C", str(checkout), "run", "PYTHON=python-that-is-not-here")

    assert done.returncode != 0
    assert "apt install python3 python3-venv" in done.stdout


def test_an_unknown_command_is_named_beside_the_known_ones(checkout):
    done = command(checkout, sys.executable, str(checkout / "packaging" / "run.py"), "rum")

    assert done.returncode == 2
    assert done.stdout.startswith("There is no command rum.")
    assert "make run " in done.stdout


def test_clean_removes_what_was_made_and_nothing_else(checkout):
    (checkout / ".venv").mkdir()
    (checkout / "demo-out").mkdir()
    (checkout / "engine" / "__pycache__").mkdir(parents=True)

    done = command(checkout, sys.executable, str(checkout / "packaging" / "run.py"), "clean")

    assert done.stdout == "3 folders removed\n"
    assert (checkout / "pyproject.toml").is_file()
    assert not (checkout / ".venv").exists()


def test_packages_are_named_before_root_installs_them(packaging, monkeypatch, capsys):
    _, _, machine = packaging
    missing = ["no-such-package-a", "no-such-package-b"]
    named = []
    monkeypatch.setattr(machine, "has_apt", lambda: True)
    monkeypatch.setattr(machine, "_is_root", lambda: True)
    monkeypatch.setattr(machine, "_apt", lambda *args: named.append(capsys.readouterr().out))

    machine.apt_install(missing, "Qt lacks libraries")

    assert named == [f"- Qt lacks libraries: apt-get installs {' '.join(missing)}\n"]


RUNNER = """
import sys

print(sys.argv[1:])
print("3 equal, 1 different")
sys.exit(3)
"""


@pytest.fixture
def installed(checkout, packaging):
    """A checkout whose .venv is this Python and whose comparisons print what they were given."""
    _, checkout_module, _ = packaging
    checkout_module.PYTHON.parent.mkdir(parents=True)
    checkout_module.PYTHON.symlink_to(sys.executable)
    checkout_module.STAMP.write_text(
        json.dumps({"key": checkout_module.stamp_key(), "extras": ["test"], "packages": 0})
    )
    for name in ("run_corpus", "run_placements", "run_numeric"):
        runner = checkout / "tests" / "oracle" / f"{name}.py"
        runner.parent.mkdir(parents=True, exist_ok=True)
        runner.write_text(RUNNER)
    for name in ("my cases", "others"):
        (checkout.parent / name).mkdir()
    return checkout


COMPARISONS = {
    "corpus": (["corpus", "CASES=my cases"], ["my cases"]),
    "corpus of both versions": (
        ["corpus", "CASES=my cases", "OTHER=others"],
        ["my cases", "others"],
    ),
    "placements": (["placements", "CASES=my cases", "HEADERS=others"], ["my cases", "others"]),
    "numeric": (["numeric", "ROOT=my cases"], ["my cases"]),
}


@pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")
@pytest.mark.parametrize("folder_option", ["-f", "-C"])
@pytest.mark.parametrize(("words", "folders"), COMPARISONS.values(), ids=COMPARISONS)
def test_a_comparison_gets_folders_from_where_make_was_called(
    installed, words, folders, folder_option
):
    place = installed / "Makefile" if folder_option == "-f" else installed
    done = command(
        installed, "make", "--no-print-directory", folder_option, str(place), *words,
        f"PYTHON={sys.executable}", PWD=str(installed.parent),
    )  # fmt: skip

    lines = done.stdout.splitlines()
    assert lines[-2] == str([str(installed.parent / name) for name in folders])
    assert lines[-1] == "3 equal, 1 different"
    assert "Error 3" in done.stderr


def test_a_comparison_ends_with_the_status_of_its_runner(installed):
    script = str(installed / "packaging" / "run.py")
    done = command(installed, sys.executable, script, "corpus", "CASES=my cases")

    assert done.returncode == 3
    assert done.stdout.endswith("3 equal, 1 different\n")


def test_a_device_to_compute_on_is_handed_on(installed):
    script = str(installed / "packaging" / "run.py")
    done = command(installed, sys.executable, script, "numeric", "ROOT=others", "DEVICE=OpenCL0")

    folder = str(installed.parent / "others")
    assert done.stdout.splitlines()[-2] == str([folder, "--device", "OpenCL0"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["corpus"], "CASES is missing. Say which folder:\n  make corpus CASES=FOLDER"),
        (["placements", "CASES=my cases"], "HEADERS is missing. Say which folder:"),
        (["numeric"], "ROOT is missing. Say which folder:\n  make numeric ROOT=FOLDER"),
        (["corpus", "CASES=nowhere"], "CASES: there is no folder nowhere"),
        (["corpus", "CASES=others", "OTHER=nowhere"], "OTHER: there is no folder nowhere"),
    ],
)
def test_a_folder_that_is_not_given_is_named_before_anything_is_installed(checkout, words, said):
    for name in ("my cases", "others"):
        (checkout.parent / name).mkdir()
    script = str(checkout / "packaging" / "run.py")
    done = command(checkout, sys.executable, script, *words, CASES="", HEADERS="", ROOT="")

    assert done.returncode == 1
    assert said in done.stdout
    assert not (checkout / ".venv").exists()


ENGINE = """
import json
import sys

if sys.argv[1] == "devices":
    print(json.dumps({"devices": [{"type": "GPU", "description": "PoCL"}], "unavailable": []}))
"""


@pytest.fixture
def measured(installed):
    """That checkout with an engine that has everything, and a benchmark that prints its words."""
    for folder, text in ((installed / "engine", ENGINE), (installed / "tests" / "bench", RUNNER)):
        folder.mkdir(parents=True)
        (folder / "__main__.py").write_text(text)
    return installed


@pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")
def test_a_benchmark_gets_the_words_of_its_args(measured):
    done = command(
        measured, "make", "--no-print-directory", "-C", str(measured), "bench",
        "ARGS=--models demo --out 'my folder'", f"PYTHON={sys.executable}",
    )  # fmt: skip

    words = ["report", "--models", "demo", "--out", "my folder"]
    assert done.stdout.splitlines()[-2] == str(words)
    assert "Error 3" in done.stderr


def test_a_quick_benchmark_ends_with_the_line_and_the_status_of_what_it_runs(measured):
    script = str(measured / "packaging" / "run.py")
    done = command(measured, sys.executable, script, "bench-quick")

    assert done.returncode == 3
    assert done.stdout.splitlines()[-2:] == ["['quick']", "3 equal, 1 different"]


def test_help_names_every_command(packaging):
    run, _, _ = packaging
    source = (ROOT / "Makefile").read_text()
    names = source.partition("COMMANDS := ")[2].partition("\n")[0].split()

    assert [name for name in names if name != "help" and f"make {name} " not in run.HELP] == []
