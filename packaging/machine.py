"""What this machine has and lacks: Python versions, system libraries, a screen, an OpenCL driver.

Plain standard library and Python 3.8 syntax, as run.py.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

OLDEST = (3, 11)
CANDIDATES = ("python3.13", "python3.12", "python3.11", "python3.14")

# What PySide6-Essentials opens, by Debian's names (found with ldd on the wheel's own files).
QT_PACKAGES = [
    *("libegl1", "libgl1", "libx11-6", "libx11-xcb1", "libdbus-1-3", "libfontconfig1"),
    *("libfreetype6", "libglib2.0-0", "libxkbcommon0", "zlib1g", "libzstd1"),
    *("libxkbcommon-x11-0", "libxcb1", "libxcb-cursor0", "libxcb-icccm4", "libxcb-image0"),
    *("libxcb-keysyms1", "libxcb-randr0", "libxcb-render0", "libxcb-render-util0"),
    *("libxcb-shape0", "libxcb-shm0", "libxcb-sync1", "libxcb-util1", "libxcb-xfixes0"),
    "libxcb-xkb1",
]
FONT_PACKAGES = ["fontconfig", "fonts-dejavu-core"]
OPENCL_PACKAGES = ["pocl-opencl-icd"]

QT_PROBE = """
import sys
from PySide6 import QtCore, QtGui, QtWidgets
app = QtGui.QGuiApplication(sys.argv[:1])
print(QtCore.qVersion(), app.platformName(), len(QtGui.QFontDatabase.families()))
"""
ANSWER = "splitscope-answer"


class CannotGoOnError(Exception):
    """Ends the command; the text says what is missing and what to do."""


def distribution(os_release: str | None = None) -> tuple[str, float]:
    """Return (ID, version) of /etc/os-release; ("", 0) where there is none."""
    if os_release is None:
        with contextlib.suppress(OSError):
            os_release = Path("/etc/os-release").read_text(encoding="utf-8")
    fields = dict(re.findall(r'^(\w+)="?([^"\n]*)', os_release or "", re.MULTILINE))
    version = re.match(r"\d+(\.\d+)?", fields.get("VERSION_ID", ""))
    return fields.get("ID", ""), float(version.group()) if version else 0.0


def package_names(names: list[str], system: tuple[str, float]) -> list[str]:
    """Return Debian's names as this release spells them.

    The move to 64-bit time_t (Debian 13, Ubuntu 24.04) renamed libglib2.0-0.
    """
    name, version = system
    renamed = version >= (24.04 if name == "ubuntu" else 13)
    return [n + "t64" if renamed and n == "libglib2.0-0" else n for n in names]


def ask(
    command: list[str],
    environment: dict[str, str] | None = None,
    *,
    folder: Path | None = None,
    timeout_s: float | None = None,
) -> tuple[int, str]:
    """Run a program to its end without our terminal; return (exit status, all that it printed)."""
    try:
        done = subprocess.run(
            command,
            check=False,
            cwd=str(folder) if folder else None,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired:
        return 124, f"no answer in {timeout_s:.0f} s"
    except OSError as error:
        return 127, str(error)
    return done.returncode, done.stdout.strip()


def version_of(python: str) -> tuple[int, ...] | None:
    """Return the version of an interpreter that really starts (a pyenv shim may not)."""
    status, output = ask([python, "-c", "import sys; print(*sys.version_info[:2])"], timeout_s=60)
    return tuple(map(int, output.split())) if status == 0 else None


def newer_python() -> str | None:
    """Return the path of a Python on this machine that is new enough."""
    for name in CANDIDATES:
        found = shutil.which(name)
        if found and (version_of(found) or (0, 0)) >= OLDEST:
            return found
    return None


def how_to_get_python(system: tuple[str, float]) -> str:
    """Return what to do where no Python is new enough."""
    name, version = system
    if name == "ubuntu" and version >= 22.04:
        return (
            "  sudo apt install python3.11 python3.11-venv\n  make run PYTHON=python3.11\n"
            "(python3.11 is in Ubuntu's universe component)"
        )
    if name == "debian" and version >= 12:
        return "  sudo apt install python3 python3-venv"
    if name == "fedora":
        return "  sudo dnf install python3.12\n  make run PYTHON=python3.12"
    return (
        "Install Python 3.11 or newer (python.org, pyenv or uv have one for every system), then\n"
        "  make run PYTHON=/path/to/python3.11"
    )


def venv_packages(system: tuple[str, float]) -> list[str]:
    """Return the packages that bring the venv module for the Python that runs this."""
    if system[0] not in {"debian", "ubuntu"}:
        return []
    if Path("/usr/bin/python3").resolve() == Path(sys.executable).resolve():
        return ["python3-venv"]
    return ["python{}.{}-venv".format(*sys.version_info)]


def can_make_venv() -> bool:
    """Say whether venv and ensurepip are there (Debian ships them apart from Python)."""
    return ask([sys.executable, "-c", "import ensurepip, venv"])[0] == 0


def probe(python: str, code: str, environment: dict[str, str]) -> tuple[list[str], str]:
    """Return (answer, error) of code in a throwaway process; no answer means that it failed.

    Qt and drivers may abort or hang: neither may reach the process that asks. They also print:
    the answer is what follows the mark.
    """
    quoted = f"print({ANSWER!r})\n{code}"
    status, output = ask([python, "-c", quoted], environment, timeout_s=60)
    if status:
        return [], output.replace(ANSWER, "").strip()
    return output.partition(ANSWER)[2].split("\n")[1:], ""


def missing_libraries(pyside: Path) -> list[str]:
    """Return the shared libraries that are absent and that Qt's modules or plugins ask for."""
    plugins = pyside / "Qt" / "plugins" / "platforms"
    wanted = [pyside / f"Qt{name}.abi3.so" for name in ("Core", "Gui", "Widgets")]
    wanted += [plugins / f"lib{name}.so" for name in ("qoffscreen", "qxcb")]
    listed = ask(["ldd", *(str(f) for f in wanted if f.exists())])[1]
    return sorted(set(re.findall(r"^\s*(\S+) => not found", listed, re.MULTILINE)))


def has_apt() -> bool:
    """Say whether packages come from apt here."""
    return shutil.which("apt-get") is not None


def absent(packages: list[str]) -> list[str]:
    """Return those of these packages that dpkg does not have installed."""
    query = ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *packages]
    installed = {line.split()[0] for line in ask(query)[1].splitlines() if " installed" in line}
    return [p for p in packages if p not in installed]


def apt_command(packages: list[str]) -> str:
    """Return the one line a person can type."""
    sudo = "" if _is_root() else "sudo "
    return f"{sudo}apt update && {sudo}apt install {' '.join(absent(packages))}"


def apt_install(packages: list[str], why: str) -> bool:
    """Install as root, or with sudo after asking on a terminal; False where neither can be.

    Either way the packages are named first.
    """
    if not has_apt() or not absent(packages):
        return False
    if _is_root():
        print(f"- {why}: apt-get installs {' '.join(absent(packages))}", flush=True)
        return _apt(packages, [])
    if not shutil.which("sudo") or not sys.stdin.isatty():
        return False
    print(f"{why}. Missing packages: {' '.join(absent(packages))}")
    answer = input("Install them with sudo apt-get? [Y/n] ").strip().lower()
    return answer in {"", "y", "yes"} and _apt(packages, ["sudo"])


def _apt(packages: list[str], prefix: list[str]) -> bool:
    if prefix:
        subprocess.run([*prefix, "-v"], check=False)  # asks for the password on the terminal
    apt = [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]
    apt += ["-o", "DPkg::Lock::Timeout=300"]
    updated = ask([*apt, "update"])
    status, output = ask([*apt, "install", "-y", "--no-install-recommends", *packages])
    if status:
        print(f"apt-get could not install {' '.join(packages)}:\n{updated[1]}\n{output[-2000:]}")
    return status == 0


def _is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0
