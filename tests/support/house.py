"""The sources for tests of tidiness: modules, what they name, and what they import."""

from __future__ import annotations

import ast
import gc
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
FLOORS = ("protocol", "storage", "coordinator", "broker")

MESSAGES = "protocol.messages"
"""Declarations, written like Kafka's own: their names are Kafka's, and Kafka documents them."""

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Source:
    """One file. `name` is its name for imports."""

    path: Path

    @property
    def name(self) -> str:
        parts = self.path.relative_to(ROOT).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def place(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @cached_property
    def text(self) -> str:
        return self.path.read_text("utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        _collect_once()
        tree = ast.parse(self.text)
        gc.freeze()  # A million nodes that stay: no garbage collection, in whichever test, should walk them.
        return tree

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the tree, in the order of `ast.walk`, which takes three times as long and is used by many
        tests."""
        found: list[ast.AST] = [self.tree]
        for node in found:  # the list grows meanwhile
            for value in vars(node).values():
                if isinstance(value, list):
                    found += [each for each in value if isinstance(each, ast.AST)]
                elif isinstance(value, ast.AST):
                    found.append(value)
        return found

    def definitions(self) -> Iterator[Definition]:
        """Yield the module's own public classes and functions, in their order."""
        for node in self.tree.body:
            if isinstance(node, Definition) and not node.name.startswith("_"):
                yield node

    def names(self) -> Iterator[str]:
        """Yield the public names that the module defines: classes, functions, constants and aliases, also those only
        for types. Its logger and type variables don't count, because nobody imports them."""
        for node in _statements(self.tree.body):
            if isinstance(node, Definition):
                given = [node.name]
            elif isinstance(node, ast.Assign | ast.AnnAssign) and not _is_the_modules_own(node.value):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                given = [
                    name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)
                ]
            else:
                continue
            yield from (name for name in given if not name.startswith("_"))

    def public(self) -> Iterator[tuple[str, Definition]]:
        """Yield these definitions, and the methods of each class without a base: a base documents its own methods."""
        for node in self.definitions():
            yield node.name, node
            if isinstance(node, ast.ClassDef) and not node.bases:
                for method in node.body:
                    if isinstance(method, ast.FunctionDef) and not method.name.startswith("_"):
                        yield f"{node.name}.{method.name}", method


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements, including those under an `if`, such as `if TYPE_CHECKING`."""
    for node in body:
        if isinstance(node, ast.If):
            yield from _statements([*node.body, *node.orelse])
        else:
            yield node


def _is_the_modules_own(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func) in ("TypeVar", "logging.getLogger")


def sources(*folders: str) -> list[Source]:
    return [_source(path) for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


@cache
def _source(path: Path) -> Source:
    """Return one object per file for all callers, so that each file is read and parsed once."""
    return Source(path)


@cache
def _collect_once() -> None:
    """Collect garbage before the trees are frozen."""
    gc.collect()


def raised_and_kept(source: Source) -> Iterator[str]:
    """Yield the functions that raise an exception that a local variable of theirs keeps. The exception's traceback
    holds their frame, and the frame holds the exception: a cycle, with everything that the frames in between refer to.
    Python deletes the name of an `except` clause after it, and `broken` errors stop the broker."""
    for node in source.nodes:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        inside = [*ast.walk(node)]
        caught = {each.name for each in inside if isinstance(each, ast.ExceptHandler)}
        deleted = {
            target.id
            for each in inside
            if isinstance(each, ast.Try)
            for final in each.finalbody
            if isinstance(final, ast.Delete)
            for target in final.targets
            if isinstance(target, ast.Name)
        }
        raised = {
            each.exc.id
            for each in inside
            if isinstance(each, ast.Raise) and isinstance(each.exc, ast.Name) and each.exc.id.islower()
        }
        if raised - caught - deleted - {"broken"}:
            yield f"{source.name}.{node.name}"


def bound_by_assignment(source: Source) -> Iterator[str]:
    """Yield `Class.name` for each class body that assigns a function from elsewhere as a method."""
    functions = {node.name for node in source.tree.body if isinstance(node, ast.FunctionDef)}
    imported: set[str] = set()
    for node in source.nodes:
        if isinstance(node, ast.ImportFrom | ast.Import):
            imported |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    for owner in source.nodes:
        if not isinstance(owner, ast.ClassDef):
            continue
        for statement in owner.body:
            if not isinstance(statement, ast.Assign):
                continue
            value = statement.value
            if isinstance(value, ast.Attribute):
                bound = (
                    isinstance(value.value, ast.Name) and value.value.id in imported and value.attr.islower()
                )
            else:
                bound = isinstance(value, ast.Name) and value.id in functions | {
                    name for name in imported if name.islower()
                }
            if bound:
                yield from (f"{owner.name}.{ast.unparse(target)}" for target in statement.targets)


def imports(modules: Iterable[Source]) -> dict[str, set[str]]:
    """Return which of the modules each module imports, even if only for a type."""
    by_name = {each.name: each for each in modules}
    found: dict[str, set[str]] = {}
    for name, source in by_name.items():
        named: set[str] = set()
        for node in source.nodes:
            if isinstance(node, ast.Import):
                named |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                package = name if source.path.name == "__init__.py" else name.rpartition(".")[0]
                for _ in range(node.level - 1):
                    package = package.rpartition(".")[0]
                base = ".".join(filter(None, [package if node.level else "", node.module or ""]))
                for alias in node.names:
                    whole = f"{base}.{alias.name}"
                    named.add(whole if whole in by_name else base)
        found[name] = (named & by_name.keys()) - {name}
    return found


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that all lead to each other (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in graph[name]:
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            at = stack.index(name)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for name in graph:
        if name not in index:
            visit(name)
    return sorted(found)


def names_on_two_floors() -> dict[str, set[str]]:
    """Return public names of modules that several floors define, with these floors. Messages have Kafka's own names."""
    floors: dict[str, set[str]] = defaultdict(set)
    for floor in FLOORS:
        for source in sources(floor):
            if source.name.startswith(MESSAGES):
                continue
            for name in source.names():
                floors[name].add(floor)
    return {name: where for name, where in floors.items() if len(where) > 1}


def classes_of_one_name() -> dict[str, list[str]]:
    """Return public class names that several modules define, with these modules, on any floor."""
    modules: dict[str, list[str]] = defaultdict(list)
    for source in sources(*FLOORS):
        if source.name.startswith(MESSAGES):
            continue
        for node in source.definitions():
            if isinstance(node, ast.ClassDef):
                modules[node.name].append(source.name)
    return {name: where for name, where in modules.items() if len(where) > 1}


def files_on_two_floors() -> dict[str, set[str]]:
    """Return names of files without their suffix that are on several floors, with these floors. Messages are in Kafka's
    families."""
    floors: dict[str, set[str]] = defaultdict(set)
    for floor in FLOORS:
        for source in sources(floor):
            if not source.name.startswith(MESSAGES):
                floors[source.path.stem].add(floor)
    return {name: where for name, where in floors.items() if len(where) > 1}
