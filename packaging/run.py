"""What `make run` and `make test` do: `python3 packaging/run.py run` where there is no make.

Plain standard library and Python 3.8 syntax, so that an old Python is told what it lacks.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import machine

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
STAMP = VENV / "splitscope-installed.json"
UNFINISHED = VENV / "splitscope-unfinished"
OUT = "demo-out"

HELP = f"""Splitscope

  make run          install what is needed, fetch the demo model, open the window on it
                    (without a screen: run the demo, write {OUT}/trace.pftrace and window.png)
  make test         install what the tests need, then style, types, rules of direction, tests
  make check        the same without the tests
  make bench        measure this machine on the demo model
  make test-models  tests on larger models
  make clean        remove .venv, caches and {OUT}

  make run PYTHON=python3.12    choose the Python
  SPLITSCOPE_HEADLESS=1         do without a window
"""


def main(arguments: list[str]) -> int:
    """Run one command and return the exit status."""
    commands = {
        "run": run,
        "test": test,
        "check": check,
        "bench": bench,
        "test-models": test_models,
        "clean": clean,
        "help": show_help,
    }
    name = arguments[0] if arguments else "help"
    if name not in commands:
        print(f"There is no command {name}.\n\n{HELP}")
        return 2
    try:
        if name not in {"help", "clean"}:
            use_a_new_enough_python(arguments)
            own_writable_folders()
        return commands[name]()
    except machine.CannotGoOnError as stop:
        print(f"\n{stop}")
        return 1
    except KeyboardInterrupt:
        print("\nStopped. The same command goes on from here.")
        return 130


# Commands


def run() -> int:
    """Install, fetch the demo model, open the window on it or do its job without one."""
    with one_at_a_time():
        environment = install([])
        screen = prepare_qt(environment)
        prepare_opencl(environment)
    fetch_demo(environment)
    if screen:
        return in_venv(["-m", "app", "--demo"], environment)
    environment["QT_QPA_PLATFORM"] = "offscreen"
    return in_venv(["-m", "app", "--headless-demo", "--out", OUT], environment)


def test() -> int:
    """Install what tests need, run every check, then the tests."""
    environment = ready_for_tests()
    with one_at_a_time():
        prepare_qt(environment)
        prepare_opencl(environment)
    if os.environ.get("SPLITSCOPE_CI"):
        fetch_demo(environment)
    failed = failing_checks(environment)
    say("pytest")
    if in_venv(["-m", "pytest", "-q"], environment):
        failed.append("pytest")
    if failed:
        print("Not clean: %s" % ", ".join(failed))
    return 1 if failed else 0


def check() -> int:
    """Run style, types and the rules of direction."""
    failed = failing_checks(ready_for_tests())
    if failed:
        print("Not clean: %s" % ", ".join(failed))
    return 1 if failed else 0


def bench() -> int:
    """Measure this machine on the demo model."""
    with one_at_a_time():
        environment = install([])
        prepare_opencl(environment)
    fetch_demo(environment)
    return in_venv(["-m", "engine", "bench"], environment)


def test_models() -> int:
    """Say that tests on larger models come later."""
    print("Tests on larger models come later. make test covers the demo model.")
    return 0


def clean() -> int:
    """Remove what the other commands made here; the user's caches stay."""
    names = [".venv", "build", "dist", OUT, "splitscope.egg-info", ".mypy_cache", ".ruff_cache"]
    names += [".pytest_cache", ".hypothesis", ".import_linter_cache"]
    there = [ROOT / name for name in names if (ROOT / name).exists()]
    there += [p for top in ("app", "engine", "tests") for p in (ROOT / top).rglob("__pycache__")]
    for folder in there:
        shutil.rmtree(folder, ignore_errors=True)
    print("%d folders removed" % len(there))
    return 0


def show_help() -> int:
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
        os.execv(newer, [newer, str(Path(__file__).resolve()), *arguments])
    raise machine.CannotGoOnError(
        "Splitscope needs Python 3.11 or newer; this is %d.%d (%s).\n%s"
        % (*sys.version_info[:2], sys.executable, machine.how_to_get_python(machine.distribution()))
    )


def own_writable_folders() -> None:
    """Move caches and settings into the checkout where the home folder cannot be written."""
    home = Path(os.environ.get("HOME") or os.path.expanduser("~"))
    if home.is_dir() and os.access(str(home), os.W_OK):
        return
    own = ROOT / "build" / "home"
    try:
        own.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise machine.CannotGoOnError("Neither %s nor %s can be written: %s" % (home, ROOT, error))
    say("home folder %s cannot be written: caches and settings go to build/home" % home)
    os.environ.update(HOME=str(own))
    for name, folder in (("CACHE", ".cache"), ("CONFIG", ".config"), ("DATA", ".local/share")):
        os.environ["XDG_%s_HOME" % name] = str(own / folder)


def ready_for_tests() -> dict[str, str]:
    """Install the test extra; return the environment of the tools."""
    with one_at_a_time():
        return install(["test"])


def install(extras: list[str]) -> dict[str, str]:
    """Bring .venv up to pyproject.toml with these extras; return the environment of its programs."""
    say("Python %d.%d.%d (%s)" % (*sys.version_info[:3], sys.executable))
    environment = venv_environment()
    before = stamp()
    if before and set(extras) <= set(before["extras"]):
        say(".venv is up to date (%d packages)" % before["packages"])
        return environment
    wanted = sorted(set(extras) | set(before["extras"] if before else []))
    start = time.monotonic()
    make_venv()
    STAMP.unlink() if STAMP.exists() else None
    UNFINISHED.touch()
    pip_install(wanted, environment)
    packages = len(list(site_packages().glob("*.dist-info")))
    facts = {"key": stamp_key(), "extras": wanted, "packages": packages}
    STAMP.write_text(json.dumps(facts), encoding="utf-8")
    UNFINISHED.unlink()
    say(".venv has %d packages (%.0f s)" % (packages, time.monotonic() - start))
    return environment


def make_venv() -> None:
    """Make .venv; anew where it belongs elsewhere, does not start or was left half installed."""
    usable = VENV.is_dir() and not UNFINISHED.exists() and machine.version_of(str(venv_python()))
    if usable == sys.version_info[:2] and belongs_here():
        return
    if not machine.can_make_venv():
        packages = machine.venv_packages(machine.distribution())
        machine.apt_install(packages, "Python's venv module is not installed")
        if not machine.can_make_venv():
            name = packages[0] if packages else "your system's package with Python's venv module"
            how = machine.apt_command(packages) if machine.has_apt() and packages else name
            raise machine.CannotGoOnError("Python's venv module is missing. Install it:\n  %s" % how)
    say("making .venv%s" % (" anew" if VENV.exists() else ""))
    made = subprocess.run(
        [sys.executable, "-m", "venv", "--clear", str(VENV)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if made.returncode:
        raise machine.CannotGoOnError("Cannot make %s:\n%s" % (VENV, made.stdout.strip()))


def pip_install(extras: list[str], environment: dict[str, str]) -> None:
    """Install this checkout with these extras; pip's own words only where it fails."""
    what = ".[%s]" % ",".join(extras) if extras else "."
    say("installing packages into .venv (the first time about 250 MB to fetch, a minute or two)")
    done = subprocess.run(
        [
            str(venv_python()),
            "-m",
            "pip",
            "install",
            "--no-input",
            "--progress-bar",
            "off",
            "-e",
            what,
        ],
        cwd=str(ROOT),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if done.returncode:
        raise machine.CannotGoOnError(
            "pip could not install Splitscope's packages. Its last words:\n\n%s\n\n"
            "With the network or the disk in order, the same command tries again."
            % "\n".join(done.stdout.strip().splitlines()[-25:])
        )


def prepare_qt(environment: dict[str, str]) -> bool:
    """Make Qt start here, installing libraries where that can be; say whether a window can open."""
    screen = screen_platform(environment)
    if screen:
        say("Qt %s" % screen)
        return True
    hidden = dict(environment, QT_QPA_PLATFORM="offscreen")
    found, error = machine.probe(str(venv_python()), machine.QT_PROBE, hidden)
    missing = machine.missing_libraries(site_packages() / "PySide6")
    has_fonts = bool(found) and int(found.split()[-1]) > 0
    if not found or not has_fonts or (missing and may_have_screen()):
        names = [] if found and not missing else list(machine.QT_PACKAGES)
        packages = machine.package_names([*names, *machine.FONT_PACKAGES], machine.distribution())
        machine.apt_install(packages, "Qt needs system libraries and a font")
        screen = screen_platform(environment)
        found, error = machine.probe(str(venv_python()), machine.QT_PROBE, hidden)
        if not found:
            raise machine.CannotGoOnError(qt_advice(error, packages))
    if screen:
        say("Qt %s" % screen)
        return True
    if found.split()[-1] == "0":
        say("no font is installed: pictures will have no text (apt install fonts-dejavu-core)")
    say("Qt %s, no window can be opened here: the demo runs without one" % found.split()[0])
    return False


def screen_platform(environment: dict[str, str]) -> str:
    """Return Qt's version and platform where a window can be opened, else nothing."""
    if environment.get("SPLITSCOPE_HEADLESS") == "1" or not may_have_screen():
        return ""
    found, _ = machine.probe(str(venv_python()), machine.QT_PROBE, environment)
    version, platform, fonts = found.split() if found else ("", "", "0")
    if platform in {"", "offscreen", "minimal", "vnc"} or fonts == "0":
        return ""
    return "%s on %s" % (version, platform)


def may_have_screen() -> bool:
    """Say whether it is worth trying; without either variable an X11 or Wayland try must fail."""
    on_unix = sys.platform not in {"win32", "darwin"}
    return not on_unix or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def qt_advice(error: str, packages: list[str]) -> str:
    """Return what to install for Qt."""
    missing = ", ".join(machine.missing_libraries(site_packages() / "PySide6"))
    last = error.splitlines()[-1] if error else "no reason given"
    if machine.has_apt():
        how = "Install them:\n  %s" % machine.apt_command(packages)
    else:
        how = "Install the packages of your system that have them."
    return "Qt does not start: %s\nMissing system libraries: %s\n%s" % (last, missing, how)


def prepare_opencl(environment: dict[str, str]) -> None:
    """Find an OpenCL device, or install PoCL so that there is a GPU device to show."""
    devices = opencl_devices(environment)
    if not devices:
        packages = list(machine.OPENCL_PACKAGES)
        machine.apt_install(packages, "The demo shows a GPU device, which needs an OpenCL driver")
        devices = opencl_devices(environment)
    if not devices and "pocl" not in (stamp() or {"extras": []})["extras"]:
        with contextlib.suppress(machine.CannotGoOnError):
            install(["pocl"])
            devices = opencl_devices(environment)
    if devices:
        say("OpenCL: %d %s (%s)" % (len(devices), plural("device", len(devices)), devices[0]))
    else:
        say("OpenCL: no driver here and none could be installed: GPU devices are shown as absent")


def opencl_devices(environment: dict[str, str]) -> list[str]:
    """Return one line a device."""
    return machine.probe(str(venv_python()), machine.OPENCL_PROBE, environment)[0].splitlines()


def fetch_demo(environment: dict[str, str]) -> None:
    """Fetch the demo model; the engine says where it lies and how big it is."""
    if in_venv(["-m", "engine", "fetch", "demo"], environment):
        raise machine.CannotGoOnError("The demo model could not be fetched; the reason stands above.")


def failing_checks(environment: dict[str, str]) -> list[str]:
    """Run style, types and rules of direction, all of them; return the names of those that fail."""
    checks = {
        "ruff check": ["-m", "ruff", "check", "."],
        "ruff format": ["-m", "ruff", "format", "--check", "."],
        "mypy": ["-m", "mypy", "--strict"],
        "lint-imports": [
            "-c",
            "import sys; from importlinter.cli import lint_imports_command as c;"
            "sys.argv[0] = 'lint-imports'; c()",
        ],
    }
    return [name for name, command in checks.items() if not passes(name, command, environment)]


def passes(name: str, command: list[str], environment: dict[str, str]) -> bool:
    """Run one check; show its output only where it fails."""
    start = time.monotonic()
    done = subprocess.run(
        [str(venv_python()), *command],
        cwd=str(ROOT),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    took = time.monotonic() - start
    say("%s: %s (%.1f s)" % (name, "not clean" if done.returncode else "clean", took))
    if done.returncode:
        print(done.stdout)
    return done.returncode == 0


# .venv


def venv_python() -> Path:
    """Return the interpreter of .venv."""
    return VENV / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def site_packages() -> Path:
    """Return the folder that pip installs into."""
    if sys.platform == "win32":
        return VENV / "Lib" / "site-packages"
    return VENV / ("lib/python%d.%d/site-packages" % sys.version_info[:2])


def venv_environment() -> dict[str, str]:
    """Return the environment without what would make another Python's packages visible."""
    unwanted = {"PYTHONHOME", "PYTHONPATH", "PIP_USER", "PIP_TARGET", "PIP_PREFIX", "VIRTUAL_ENV"}
    environment = {k: v for k, v in os.environ.items() if k not in unwanted}
    environment["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    environment["PYTHONNOUSERSITE"] = "1"
    return environment


def stamp_key() -> str:
    """Return what the installation depends on; another value means that pip must run again."""
    project = (ROOT / "pyproject.toml").read_bytes()
    place = "%s %d.%d" % (ROOT, *sys.version_info[:2])
    return hashlib.sha256(project + place.encode()).hexdigest()


def stamp() -> dict | None:
    """Return the facts of the last finished installation if they still hold."""
    try:
        facts = json.loads(STAMP.read_text(encoding="utf-8"))
        current = facts["key"] == stamp_key() and not UNFINISHED.exists()
    except (OSError, ValueError, KeyError):
        return None
    return facts if current and venv_python().exists() else None


def belongs_here() -> bool:
    """Say whether .venv was made at this place: its scripts hold absolute paths."""
    activate = VENV / ("Scripts" if sys.platform == "win32" else "bin") / "activate"
    try:
        return str(VENV) in activate.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def in_venv(arguments: list[str], environment: dict[str, str]) -> int:
    """Run .venv's Python in the checkout with our terminal; return its exit status."""
    return subprocess.run(
        [str(venv_python()), *arguments], cwd=str(ROOT), env=environment
    ).returncode


@contextlib.contextmanager
def one_at_a_time():
    """Keep two commands in the same checkout from installing at once."""
    try:
        import fcntl
    except ImportError:  # Windows has no flock and seldom two makes
        yield
        return
    folder = os.open(str(ROOT), os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say("waiting for another command in this folder")
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def say(text: str) -> None:
    """Print one line of progress, at once."""
    print("- " + text, flush=True)


def plural(word: str, count: int) -> str:
    """Return the word for this many."""
    return word if count == 1 else word + "s"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
