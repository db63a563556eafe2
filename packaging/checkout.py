"""The checkout's own Python: .venv, what is installed in it, and the programs that run in it.

Plain standard library and Python 3.8 syntax, as run.py.
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
from typing import TYPE_CHECKING

import machine

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
STAMP = VENV / "splitscope-installed.json"
UNFINISHED = VENV / "splitscope-unfinished"
ON_WINDOWS = sys.platform == "win32"
PYTHON = VENV / ("Scripts/python.exe" if ON_WINDOWS else "bin/python")
_LIB = "Lib" if ON_WINDOWS else "lib/python{}.{}".format(*sys.version_info)
SITE_PACKAGES = VENV / _LIB / "site-packages"

# Variables that would make another Python's packages visible, or send ours elsewhere.
UNWANTED = {"PYTHONHOME", "PYTHONPATH", "PIP_USER", "PIP_TARGET", "PIP_PREFIX", "VIRTUAL_ENV"}


def install(extras: list[str]) -> dict[str, str]:
    """Bring .venv up to pyproject.toml with these extras; return its programs' environment.

    Extras that were installed before stay. Fast where the stamp says that nothing changed.
    """
    environment = {k: v for k, v in os.environ.items() if k not in UNWANTED}
    environment.update(PIP_DISABLE_PIP_VERSION_CHECK="1", PYTHONNOUSERSITE="1")
    before = stamp()
    if before and set(extras) <= set(before["extras"]):
        say(f".venv is up to date ({before['packages']} packages)")
        return environment
    wanted = sorted({*extras, *(before["extras"] if before else [])})
    start = time.monotonic()
    make_venv()
    say("installing packages into .venv (the first time about 160 MB to fetch, a minute or so)")
    # A package whose files are half there looks installed to pip: the next run starts afresh.
    UNFINISHED.touch()
    with contextlib.suppress(FileNotFoundError):
        STAMP.unlink()
    pip_install(wanted, environment)
    UNFINISHED.unlink()
    write_stamp(wanted)
    say(f".venv has {count_packages()} packages ({time.monotonic() - start:.0f} s)")
    return environment


def install_optional(extra: str, environment: dict[str, str]) -> None:
    """Add an extra that the program can do without; whatever happens, .venv counts as whole."""
    before = stamp()
    if before is None or extra in before["extras"]:
        return
    try:
        pip_install([extra], environment)
    except machine.CannotGoOnError:
        say(f"pip has no {extra} for this machine")
    else:
        write_stamp([*before["extras"], extra])


def make_venv() -> None:
    """Make .venv; anew where it was made elsewhere, does not start or was left half installed."""
    whole = belongs_here() and not UNFINISHED.exists()
    if whole and machine.version_of(str(PYTHON)) == sys.version_info[:2]:
        return
    if not machine.can_make_venv():
        get_venv_module()
    say(f"making .venv{' anew' if VENV.exists() else ''}")
    status, output = machine.ask([sys.executable, "-m", "venv", "--clear", str(VENV)])
    if status:
        raise machine.CannotGoOnError(f"Cannot make {VENV}:\n{output}")


def get_venv_module() -> None:
    """Install Python's venv module where that can be; say how otherwise."""
    packages = machine.venv_packages(machine.distribution())
    machine.apt_install(packages, "Python's venv module is missing")
    if machine.can_make_venv():
        return
    how = machine.apt_command(packages) if packages else "your system's package of venv, ensurepip"
    raise machine.CannotGoOnError(f"Python's venv module is missing. Install it:\n  {how}")


def pip_install(extras: list[str], environment: dict[str, str]) -> None:
    """Install this checkout with these extras; pip's own words only where it cannot."""
    what = f".[{','.join(extras)}]" if extras else "."
    pip = [str(PYTHON), "-m", "pip", "install", "--no-input", "--progress-bar", "off"]
    status, output = machine.ask([*pip, "-e", what], environment, folder=ROOT)
    if status:
        last_words = "\n".join(output.splitlines()[-25:])
        raise machine.CannotGoOnError(
            f"pip could not install Splitscope's packages. Its last words:\n\n{last_words}\n\n"
            "Once the network or the disk is in order, run the same command again."
        )


def stamp() -> dict | None:
    """Return the facts of the last finished installation if they still hold."""
    try:
        facts = json.loads(STAMP.read_text(encoding="utf-8"))
        holds = facts["key"] == stamp_key() and not UNFINISHED.exists() and PYTHON.exists()
    except (OSError, ValueError, KeyError):
        return None
    return facts if holds else None


def write_stamp(extras: list[str]) -> None:
    """Say in .venv that it is whole, with these extras."""
    facts = {"key": stamp_key(), "extras": extras, "packages": count_packages()}
    STAMP.write_text(json.dumps(facts), encoding="utf-8")


def count_packages() -> int:
    """Return how many packages .venv has."""
    return len(list(SITE_PACKAGES.glob("*.dist-info")))


def stamp_key() -> str:
    """Return what the installation depends on; another value means that pip must run again."""
    project = (ROOT / "pyproject.toml").read_bytes()
    place = "{} {}.{}".format(ROOT, *sys.version_info)
    return hashlib.sha256(project + place.encode()).hexdigest()


def belongs_here() -> bool:
    """Say whether .venv was made at this place: its scripts hold absolute paths."""
    try:
        text = (PYTHON.parent / "activate").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return str(VENV) in text


def run_python(arguments: list[str], environment: dict[str, str]) -> int:
    """Run .venv's Python in the checkout with our terminal; return its exit status."""
    command = [str(PYTHON), *arguments]
    return subprocess.run(command, check=False, cwd=str(ROOT), env=environment).returncode


def use_writable_folders() -> None:
    """Send caches and settings into the checkout where the home folder cannot be written."""
    home = Path(os.environ.get("HOME") or os.path.expanduser("~"))  # noqa: PTH111 - Path.home() raises where there is none
    if home.is_dir() and os.access(str(home), os.W_OK):
        return
    own = ROOT / "build" / "home"
    try:
        own.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise machine.CannotGoOnError(
            f"Neither {home} nor {ROOT} can be written: {error}"
        ) from None
    say(f"home folder {home} cannot be written: caches and settings go to build/home")
    os.environ["HOME"] = str(own)
    for name, folder in (("CACHE", ".cache"), ("CONFIG", ".config"), ("DATA", ".local/share")):
        os.environ[f"XDG_{name}_HOME"] = str(own / folder)


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Keep two commands in the same checkout from installing at once."""
    try:
        import fcntl
    except ImportError:  # Windows has no flock
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


def clean(names: list[str]) -> int:
    """Remove these folders and all compiled Python of ours; return how many there were."""
    there = [ROOT / name for name in names if (ROOT / name).exists()]
    there += [p for top in ("app", "engine", "tests") for p in (ROOT / top).rglob("__pycache__")]
    for folder in there:
        shutil.rmtree(str(folder), ignore_errors=True)
    return len(there)


def say(text: str) -> None:
    """Print one line of progress, at once."""
    print(f"- {text}", flush=True)
