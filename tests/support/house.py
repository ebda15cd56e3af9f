"""The sources as a test of tidiness sees them: modules, what they name, and whom they import."""

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
"""Declarations, written down as Kafka's own are: their names are Kafka's, and Kafka documents them."""

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Source:
    """One file. `name` is what it is imported as."""

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
        gc.freeze()  # a million nodes that stay: no collection of garbage, in whichever test, walks them
        return tree

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All of the tree, as `ast.walk` has them, which takes three times as long and is asked for by many a test."""
        found: list[ast.AST] = [self.tree]
        for node in found:  # which grows meanwhile
            for value in vars(node).values():
                if isinstance(value, list):
                    found += [each for each in value if isinstance(each, ast.AST)]
                elif isinstance(value, ast.AST):
                    found.append(value)
        return found

    def definitions(self) -> Iterator[Definition]:
        """The public classes and functions of the module itself, in their order."""
        for node in self.tree.body:
            if isinstance(node, Definition) and not node.name.startswith("_"):
                yield node

    def names(self) -> Iterator[str]:
        """What the module itself gives a public name: classes, functions, constants and aliases, be they for types
        alone. Neither its logger nor its type variables, which nobody imports."""
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
        """Those, and the methods of each class that has no base: what a base declares, the base tells of."""
        for node in self.definitions():
            yield node.name, node
            if isinstance(node, ast.ClassDef) and not node.bases:
                for method in node.body:
                    if isinstance(method, ast.FunctionDef) and not method.name.startswith("_"):
                        yield f"{node.name}.{method.name}", method


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """With those that stand under an `if`, as under `if TYPE_CHECKING`."""
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
    """One for all who ask, since it is read and parsed once."""
    return Source(path)


@cache
def _collect_once() -> None:
    """What is garbage by now is not to stay with the trees."""
    gc.collect()


def raised_and_kept(source: Source) -> Iterator[str]:
    """The functions that raise what a local name of theirs goes on to hold. The exception's traceback holds their
    frame, and the frame the exception: a cycle, with all that the frames between have to do with. What `except` names
    is deleted behind it, and what is `broken` stops the broker."""
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
    """`Class.name` wherever a class body makes a function of somewhere else a method by assigning it."""
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
    """Who of the modules imports whom of them, be it for a type alone."""
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
    """The groups of modules in which each leads to each other (Tarjan's strongly connected components)."""
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
    """Public names of modules, with the floors that give something each; messages have Kafka's own names."""
    floors: dict[str, set[str]] = defaultdict(set)
    for floor in FLOORS:
        for source in sources(floor):
            if source.name.startswith(MESSAGES):
                continue
            for name in source.names():
                floors[name].add(floor)
    return {name: where for name, where in floors.items() if len(where) > 1}


def classes_of_one_name() -> dict[str, list[str]]:
    """Public names of classes, with the modules that have one each, be they on one floor or on two."""
    modules: dict[str, list[str]] = defaultdict(list)
    for source in sources(*FLOORS):
        if source.name.startswith(MESSAGES):
            continue
        for node in source.definitions():
            if isinstance(node, ast.ClassDef):
                modules[node.name].append(source.name)
    return {name: where for name, where in modules.items() if len(where) > 1}


def files_on_two_floors() -> dict[str, set[str]]:
    """Names of files, without their ending, with the floors that have one each; messages are in families of Kafka's."""
    floors: dict[str, set[str]] = defaultdict(set)
    for floor in FLOORS:
        for source in sources(floor):
            if not source.name.startswith(MESSAGES):
                floors[source.path.stem].add(floor)
    return {name: where for name, where in floors.items() if len(where) > 1}
