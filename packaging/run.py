"""What `make run` and `make test` do: `python3 packaging/run.py run` where there is no make.

Plain standard library and Python 3.8 syntax, so that an old Python is told what it lacks.

machine.py   what this machine has and lacks: Python, system libraries, apt
checkout.py  .venv, what is installed in it, programs that run in it
run.py       the commands
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from pathlib import Path
from typing import NamedTuple

import machine
from checkout import (
    PYTHON,
    ROOT,
    SITE_PACKAGES,
    clean,
    install,
    install_optional,
    one_at_a_time,
    run_python,
    say,
    use_writable_folders,
)

OUT = "demo-out"
MADE_HERE = [
    *(".venv", "build", "dist", OUT, "splitscope.egg-info"),
    *(".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".import_linter_cache"),
]
TEST_MODELS = ("demo", "gemma", "qwen")
ORACLE_FOLDERS = ("CASES", "HEADERS")
NO_TESTS = 5  # pytest's exit status where it found none
HELP = f"""Splitscope

  make run          install what is needed, fetch the demo model, open the window on it
                    (without a screen: run the demo, write {OUT}/trace.pftrace and window.png)
  make test         install what the tests need, then style, types, rules of direction, tests
  make check        the same without the tests
  make bench        measure this machine: ours against llama.cpp, four models (1.9 GB to fetch)
  make bench-quick  the same in under a minute, on the demo model only
  make test-models  fetch two larger models (730 MB, their licences are shown), run their tests
  make clean        remove .venv, caches and {OUT}

  make corpus CASES=FOLDER [OTHER=FOLDER]      our scheduler on recorded scheduler scripts
  make placements CASES=FOLDER HEADERS=FOLDER  our planner on recorded runs of whole models
  make numeric ROOT=FOLDER [DEVICE=OpenCL0]    what our engine computes, node by node, on
                                               recorded models; without DEVICE on the CPU

  make run PYTHON=python3.12    choose the Python
  SPLITSCOPE_HEADLESS=1         do without a window
"""

LINT_IMPORTS = """
import sys
from importlinter.cli import lint_imports_command
sys.argv[0] = "lint-imports"
lint_imports_command()
"""
CHECKS = {
    "ruff check": ["-m", "ruff", "check", "--output-format", "concise", "."],
    "ruff format": ["-m", "ruff", "format", "--check", "--output-format", "concise", "."],
    "mypy": ["-m", "mypy", "--strict"],
    "lint-imports": ["-c", LINT_IMPORTS],
}


class QtState(NamedTuple):
    """What throwaway processes found out about Qt here."""

    screen: str  # platform of a window, "" where none can be opened
    version: str  # "" where Qt does not start at all
    n_fonts: int
    missing: list  # shared libraries that are absent, by name
    error: str


def main(arguments: list[str]) -> int:
    """Run one command and return the exit status.

    Words of the form NAME=VALUE go into the environment, where make puts them too.
    """
    os.environ.update(dict(word.split("=", 1) for word in arguments[1:] if "=" in word))
    commands = {
        "run": command_run,
        "test": command_test,
        "check": command_check,
        "bench": command_bench,
        "bench-quick": command_bench_quick,
        "test-models": command_test_models,
        "corpus": command_corpus,
        "placements": command_placements,
        "numeric": command_numeric,
        "clean": command_clean,
        "help": command_help,
    }
    name = arguments[0] if arguments else "help"
    if name not in commands:
        print(f"There is no command {name}.\n\n{HELP}")
        return 2
    try:
        if name not in {"help", "clean"}:
            use_a_new_enough_python(arguments)
            say("Python {}.{}.{} ({})".format(*sys.version_info[:3], sys.executable))
            use_writable_folders()
        return commands[name]()
    except machine.CannotGoOnError as stop:
        print(f"\n{stop}")
        return 1
    except KeyboardInterrupt:
        print("\nStopped. The same command goes on from here.")
        return 130


# Commands


def command_run() -> int:
    """Install, fetch the demo model, open the window on it or do its job without one."""
    with one_at_a_time():
        environment = install([])
        screen = prepare_qt(environment)
        prepare_opencl(environment)
    fetch("demo", environment)
    if screen:
        return run_python(["-m", "app", "--demo"], environment)
    hidden = dict(environment, QT_QPA_PLATFORM="offscreen")
    return run_python(["-m", "app", "--headless-demo", "--out", OUT], hidden)


def command_test() -> int:
    """Install what tests need, run every check, then the tests."""
    with one_at_a_time():
        environment = install(["test"])
        prepare_qt(environment)
        prepare_opencl(environment)
    if os.environ.get("SPLITSCOPE_CI"):
        fetch("demo", environment)
    unclean = failing_checks(environment)
    say("pytest")
    if run_python(["-m", "pytest", "-q"], environment):
        unclean.append("pytest")
    return summary(unclean)


def command_check() -> int:
    """Run style, types and the rules of direction."""
    with one_at_a_time():
        environment = install(["test"])
    return summary(failing_checks(environment))


def command_bench() -> int:
    """Measure, and write a report; ARGS says which part of it, without it everything."""
    with one_at_a_time():
        environment = install([])
        prepare_opencl(environment)
    words = shlex.split(os.environ.get("ARGS", ""))
    return run_python(["-m", "tests.bench", "report", *words], environment)


def command_bench_quick() -> int:
    """Measure the demo model; the last line that is printed holds the ratios."""
    with one_at_a_time():
        environment = install([])
    fetch("demo", environment)
    return run_python(["-m", "tests.bench", "quick"], environment)


def command_test_models() -> int:
    """Fetch the larger models and run the tests that need them."""
    with one_at_a_time():
        environment = install(["test"])
        prepare_qt(environment)
        prepare_opencl(environment)
    for model in TEST_MODELS:
        fetch(model, environment)
    say("pytest")
    # Scoring takes minutes a test: no stack traces of tests that are only slow.
    pytest = ["-m", "pytest", "-q", "-m", "models", "-o", "faulthandler_timeout=0"]
    status = run_python(pytest, environment)
    if status == NO_TESTS:
        say("the recordings that these tests compare with are not here (SPLITSCOPE_ORACLE)")
    return status


def command_corpus() -> int:
    """Compare our scheduler with recorded scheduler scripts; the runner prints the figures."""
    usage = "make corpus CASES=FOLDER [OTHER=FOLDER]"
    folders = [folder("CASES", usage)]
    if os.environ.get("OTHER"):
        folders.append(folder("OTHER", usage))
    return run_oracle("tests.oracle.run_corpus", folders)


def command_placements() -> int:
    """Compare our planner with recorded runs of whole models; the runner prints the figures."""
    usage = "make placements CASES=FOLDER HEADERS=FOLDER"
    return run_oracle("tests.oracle.run_placements", [folder(n, usage) for n in ORACLE_FOLDERS])


def command_numeric() -> int:
    """Compare what our engine computes with recorded values; the runner prints the figures."""
    words = [folder("ROOT", "make numeric ROOT=FOLDER [DEVICE=OpenCL0]")]
    if os.environ.get("DEVICE"):
        words += ["--device", os.environ["DEVICE"]]
    return run_oracle("tests.oracle.run_numeric", words)


def command_clean() -> int:
    """Remove what the other commands made here; the user's caches stay."""
    print(f"{clean(MADE_HERE)} folders removed")
    return 0


def command_help() -> int:
    """Print the commands."""
    print(HELP, end="")
    return 0


# Steps


def use_a_new_enough_python(arguments: list[str]) -> None:
    """Start this command again with a newer Python where the present one is too old."""
    if sys.version_info[:2] >= machine.OLDEST:
        return
    newer = machine.newer_python()
    if newer:
        sys.stdout.flush()
        os.execv(newer, [newer, str(Path(__file__).resolve()), *arguments])
    present = "{}.{}.{}".format(*sys.version_info)
    raise machine.CannotGoOnError(
        f"Splitscope needs Python 3.11 or newer; {sys.executable} is {present}.\n"
        f"{machine.how_to_get_python(machine.distribution())}"
    )


def prepare_qt(environment: dict[str, str]) -> bool:
    """Make Qt start here, installing libraries where that can be; say whether it has a screen."""
    state = look_at_qt(environment)
    packages = machine.FONT_PACKAGES if state.n_fonts == 0 else []
    if state.missing or not state.version:
        packages = machine.package_names(
            [*machine.QT_PACKAGES, *machine.FONT_PACKAGES], machine.distribution()
        )
    if packages and machine.apt_install(packages, "Qt lacks system libraries or a font"):
        state = look_at_qt(environment)
    advice = machine.apt_command(packages) if machine.has_apt() else ", ".join(state.missing)
    if not state.version:
        raise machine.CannotGoOnError(
            f"Qt does not start here: {state.error}\nInstall what it lacks:\n  {advice}"
        )
    if state.n_fonts == 0:
        say(f"no font is installed, so there will be no text: {advice}")
    if state.missing:
        say(f"a window would need more libraries: {advice}")
    where = f"on {state.screen}" if state.screen else "without a screen"
    say(f"Qt {state.version} {where}")
    return bool(state.screen)


def look_at_qt(environment: dict[str, str]) -> QtState:
    """Find out by trying: DISPLAY can be set and dead."""
    wants_screen = may_have_screen(environment)
    if wants_screen:
        found, _ = machine.probe(str(PYTHON), machine.QT_PROBE, environment)
        version, platform, fonts = found[0].split() if found else ("", "", "0")
        if platform not in {"", "offscreen", "minimal", "vnc"}:
            return QtState(platform, version, int(fonts), [], "")
    hidden = dict(environment, QT_QPA_PLATFORM="offscreen")
    found, error = machine.probe(str(PYTHON), machine.QT_PROBE, hidden)
    version, _, fonts = found[0].split() if found else ("", "", "-1")
    missing = []
    if wants_screen or not found:
        missing = machine.missing_libraries(SITE_PACKAGES / "PySide6")
    return QtState("", version, int(fonts), missing, (error.splitlines() or [""])[-1])


def may_have_screen(environment: dict[str, str]) -> bool:
    """Say whether a window is wanted and worth trying."""
    if environment.get("SPLITSCOPE_HEADLESS") == "1":
        return False
    if sys.platform in {"win32", "darwin"}:
        return True
    return any(environment.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"))


def prepare_opencl(environment: dict[str, str]) -> None:
    """Find an OpenCL device, or install PoCL so that there is a GPU device to show."""
    devices, why_not = opencl_devices(environment)
    if not devices:
        machine.apt_install(machine.OPENCL_PACKAGES, "no OpenCL driver, which the demo's GPU needs")
        devices, why_not = opencl_devices(environment)
    if not devices:
        say("no OpenCL driver: trying the one that pip has (PoCL)")
        install_optional("pocl", environment)
        devices, why_not = opencl_devices(environment)
    if devices:
        say(f"OpenCL devices: {len(devices)} ({'; '.join(devices)})")
        return
    say("OpenCL devices: 0; going on without: the demo is planned with a GPU on paper")
    for reason in why_not:
        say(reason)


def opencl_devices(environment: dict[str, str]) -> tuple[list[str], list[str]]:
    """Return the devices that the engine can use, and why it cannot use others."""
    command = [str(PYTHON), "-m", "engine", "devices", "--json"]
    status, output = machine.ask(command, environment, folder=ROOT)
    lines = output.splitlines()
    if status or not lines:
        return [], lines[-1:]
    answer = json.loads(lines[-1])
    devices = [d["description"] for d in answer["devices"] if d["type"] != "CPU"]
    left_out = [item for item in answer["unavailable"] if not item["hidden"]]
    return devices, [f"{item['name']}: {item['reason']}. {item['hint']}" for item in left_out]


def fetch(model: str, environment: dict[str, str]) -> None:
    """Fetch a known model; the engine itself says where it lies, how big it is, whose it is."""
    if run_python(["-m", "engine", "fetch", model], environment):
        raise machine.CannotGoOnError(
            f"The {model} model could not be fetched; the reason is above."
        )


def folder(name: str, usage: str) -> str:
    """Return the folder that a variable names, from where the person stands."""
    given = os.environ.get(name)
    if not given:
        raise machine.CannotGoOnError(f"{name} is missing. Say which folder:\n  {usage}")
    # make -C runs in this folder, not where it was called from.
    places = [Path.cwd(), Path(os.environ.get("CALLED_FROM") or ".")]
    choices = [place / Path(given).expanduser() for place in places]
    found = [path for path in choices if path.is_dir()]
    if not found:
        raise machine.CannotGoOnError(f"{name}: there is no folder {given}\n  {usage}")
    return str(found[0].resolve())


def run_oracle(module: str, words: list[str]) -> int:
    """Run a comparison with recordings; its last line is the last that is printed."""
    with one_at_a_time():
        environment = install(["test"])
    return run_python(["-m", module, *words], environment)


def failing_checks(environment: dict[str, str]) -> list[str]:
    """Run style, types and rules of direction, all of them; return the names of those that fail."""
    return [name for name, command in CHECKS.items() if not passes(name, command, environment)]


def passes(name: str, command: list[str], environment: dict[str, str]) -> bool:
    """Run one check; show its output only where it fails."""
    start = time.monotonic()
    status, output = machine.ask([str(PYTHON), *command], environment, folder=ROOT)
    say(f"{name}: {'not clean' if status else 'clean'} ({time.monotonic() - start:.1f} s)")
    if status:
        print(output, flush=True)
    return status == 0


def summary(unclean: list[str]) -> int:
    """Name what was not clean and return the exit status."""
    if unclean:
        print(f"Not clean: {', '.join(unclean)}")
    return 1 if unclean else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
