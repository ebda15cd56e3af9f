"""The compiled wheel: `BARNABAS_COMPILE=1 python -m build --wheel`, or `make dist-compiled`.

It has the same sources as the pure one, and beside them what mypyc made of the modules that pyproject.toml names, which
the interpreter takes first. It fits one version of Python on one kind of machine; pip takes the pure wheel elsewhere.

`python hatch_compile.py FOLDER` compiles the floors in a folder where they stand: in a copy of the checkout, never in
the one that is edited, where what is compiled would hide each change.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FLOORS = ("protocol", "storage", "coordinator", "broker")
SERVER = "barnabas/server"
"""Where a wheel has the floors."""

_SETUP = """
import os, sys
from mypyc.build import mypycify
from setuptools import setup

modules = sys.argv.pop().split(",")
extensions = mypycify(
    ["--ignore-missing-imports", *modules], opt_level=os.environ["OPT_LEVEL"], multi_file=True
)
setup(name="barnabas-compiled", packages=[], ext_modules=extensions)
"""


class CustomBuildHook(BuildHookInterface):
    """Hatchling's."""

    def dependencies(self) -> list[str]:
        return ["mypy[mypyc]>=1.14", "setuptools>=65"] if _is_asked_for() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds what is compiled. Raises CompileError."""
        if not _is_asked_for() or version != "standard":
            return
        self._folder = tempfile.mkdtemp(prefix="barnabas-compile-")
        folder = Path(self._folder)
        for made in compile_floors(Path(self.root), self.config["modules"], folder):
            build_data["force_include"][str(made)] = f"{SERVER}/{made.relative_to(folder)}"
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Removes what isn't needed any more."""
        if hasattr(self, "_folder"):
            shutil.rmtree(self._folder, ignore_errors=True)


class CompileError(Exception):
    """It can't be compiled, and why."""


def _is_asked_for() -> bool:
    return os.environ.get("BARNABAS_COMPILE") == "1"


def compile_floors(root: Path, modules: Sequence[str], folder: Path) -> list[Path]:
    """What was made of the modules of the checkout at `root`: paths in an empty `folder`.

    It is done there, on copies of the floors, since setuptools would read the checkout's own settings.
    BARNABAS_COMPILE_OPT: the compiler's level of optimization, 2 if it isn't given. Raises CompileError.
    """
    if children := list(left_out(root, modules)):
        raise CompileError(f"a class that isn't compiled can't be one's child that is: {', '.join(children)}")
    if mixed := list(mixed_with_int(root, modules)):
        raise CompileError(f"mypyc would make plain ints of these enums: {', '.join(mixed)}")
    for floor in FLOORS:
        shutil.copytree(root / floor, folder / floor, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    level = os.environ.get("BARNABAS_COMPILE_OPT", "2")
    ended = subprocess.run(
        [sys.executable, "-c", _SETUP, "build_ext", "--inplace", f"-j{os.cpu_count()}", ",".join(modules)],
        cwd=folder,
        env={**os.environ, "OPT_LEVEL": level},
        capture_output=True,
        text=True,
        check=False,
    )
    made = [*folder.glob("*.so"), *(found for floor in FLOORS for found in (folder / floor).rglob("*.so"))]
    if ended.returncode or len(made) <= len(modules):  # one each, and one that they share
        raise CompileError(f"mypyc failed:\n{ended.stdout[-3000:]}{ended.stderr[-3000:]}")
    return made


def left_out(root: Path, modules: Sequence[str]) -> Iterator[str]:
    """Classes of other modules whose parents are compiled: CPython would refuse them when they are made."""
    parents = {
        node.name
        for module in modules
        for node in ast.walk(ast.parse((root / module).read_text()))
        if isinstance(node, ast.ClassDef)
    }
    for floor in FLOORS:
        for file in sorted((root / floor).rglob("*.py")):
            name = str(file.relative_to(root))
            if name not in modules:
                for node in ast.walk(ast.parse(file.read_text())):
                    if isinstance(node, ast.ClassDef) and parents & {*map(_name, node.bases)}:
                        yield f"{name}: {node.name}"


def mixed_with_int(root: Path, modules: Sequence[str]) -> Iterator[str]:
    """Unions of int and an enum of ints, which to mypyc are int: what tells them apart wouldn't any more."""
    enums = {
        node.name
        for floor in FLOORS
        for file in (root / floor).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ClassDef) and {"IntEnum", "IntFlag"} & {*map(_name, node.bases)}
    }
    for module in modules:
        for node in ast.walk(ast.parse((root / module).read_text())):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
                parts = {_name(part) for part in ast.walk(node) if isinstance(part, ast.expr)}
                if "int" in parts and parts & enums:
                    yield f"{module}:{node.lineno}: {ast.unparse(node)}"


def _name(base: ast.expr) -> str:
    while isinstance(base, ast.Subscript):
        base = base.value
    if isinstance(base, ast.Attribute):
        return base.attr
    return base.id if isinstance(base, ast.Name) else ""


def modules_of(root: Path) -> list[str]:
    """Those that pyproject.toml names."""
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    modules: list[str] = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["modules"]
    return modules


if __name__ == "__main__":
    target = Path(sys.argv[1])
    try:
        with tempfile.TemporaryDirectory(prefix="barnabas-compile-") as temporary:
            for made in compile_floors(target, modules_of(target), Path(temporary)):
                shutil.copy(made, target / made.relative_to(temporary))
    except CompileError as failure:
        sys.exit(str(failure))
