"""The maps in package docstrings are true: what they name exists, and nothing is left out."""

import ast
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOPS = ("engine", "app")
PACKAGES = sorted(p.parent for top in TOPS for p in (ROOT / top).rglob("__init__.py"))
MAP_LINE = re.compile(r"^(\w+)(?:\.py|/)? {2,}\S", re.MULTILINE)
DOTTED = re.compile(r"\b(?:engine|app)(?:\.\w+)+")


def docstring(package: Path) -> str:
    return ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""


def name_of(package: Path) -> str:
    return ".".join(package.relative_to(ROOT).parts)


def children(package: Path) -> set[str]:
    """Name the modules and packages of a package that a map should have."""
    modules = {p.stem for p in package.glob("*.py")} - {"__init__", "__main__"}
    return modules | {p.parent.name for p in package.glob("*/__init__.py")}


def defined_names(module: Path) -> set[str]:
    """Return what a module defines or imports at its top level."""
    names: set[str] = set()
    for node in ast.parse(module.read_text()).body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Assign(targets=targets):
                names |= {t.id for t in targets if isinstance(t, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names |= {a.asname or a.name for a in aliases}
    return names


def exists(dotted: str) -> bool:
    """Say whether a dotted name is a module, or a name in one."""
    place = ROOT
    for i, part in enumerate(parts := dotted.split(".")):
        if (place / part).is_dir():
            place /= part
        elif (place / f"{part}.py").is_file():
            rest = parts[i + 1 :]
            return not rest or rest[0] in defined_names(place / f"{part}.py")
        else:
            return part in defined_names(place / "__init__.py")
    return True


@pytest.mark.parametrize("package", PACKAGES, ids=name_of)
def test_what_a_map_names_exists(package):
    named = set(MAP_LINE.findall(docstring(package)))
    folders = {p.name for p in package.iterdir() if p.is_dir()}

    assert sorted(named - children(package) - folders - {"__main__"}) == []


@pytest.mark.parametrize("package", PACKAGES, ids=name_of)
def test_a_map_leaves_nothing_out(package):
    named = set(MAP_LINE.findall(docstring(package)))

    assert not named or sorted(children(package) - named) == []


@pytest.mark.parametrize("top", TOPS)
def test_the_map_of_the_whole_names_every_package(top):
    text = docstring(ROOT / top)
    named = {dotted.split(".")[1] for dotted in DOTTED.findall(text)}
    named |= set(MAP_LINE.findall(text))

    assert {p.parent.name for p in (ROOT / top).glob("*/__init__.py")} <= named


@pytest.mark.parametrize("package", PACKAGES, ids=name_of)
def test_every_dotted_name_in_a_map_exists(package):
    missing = [name for name in DOTTED.findall(docstring(package)) if not exists(name)]

    assert not missing


def every_module() -> list[str]:
    return sorted(
        m.name
        for top in TOPS
        for m in pkgutil.walk_packages([str(ROOT / top)], f"{top}.")
        if not m.name.endswith("__main__")
    )


@pytest.mark.parametrize("name", every_module())
def test_every_module_imports(name):
    assert importlib.import_module(name).__doc__
