"""What handlers ask of a node by the names of their parameters: it has each of them, and it is what they say."""

from __future__ import annotations

import ast
import importlib
import inspect
import types
from collections.abc import Iterator
from types import ModuleType
from typing import Any, get_args, get_origin

from broker.handlers import HANDLERS
from broker.server import Server


def names_of(module: ModuleType) -> dict[str, Any]:
    """What the module imports, for types alone included."""
    found: dict[str, Any] = {}
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module != "__future__":
            imported = importlib.import_module(node.module)
            for alias in node.names:
                if hasattr(imported, alias.name):  # else it is a module, and no type
                    found[alias.asname or alias.name] = getattr(imported, alias.name)
    return found


def ports() -> Iterator[tuple[str, str, Any]]:
    """(handler, port, its type)."""
    for handler in HANDLERS.values():
        module = importlib.import_module(f"broker.handlers.{handler}")
        *parameters, context, request = inspect.signature(module.handle).parameters.values()
        assert (context.name, request.name) == ("context", "request"), handler
        names = {**vars(module), **names_of(module)}
        for parameter in parameters:
            yield handler, parameter.name, eval(parameter.annotation, names)


def is_a(value: object, kind: Any) -> bool:
    if get_origin(kind) is types.UnionType:
        return any(is_a(value, each) for each in get_args(kind))
    kind = get_origin(kind) or kind
    if getattr(kind, "_is_protocol", False):
        members = {name for name in vars(kind) if not name.startswith("_")}
        return all(hasattr(value, name) for name in members)
    return isinstance(value, kind)


def test_no_handler_is_given_the_node_whole() -> None:
    assert {handler for handler, _, kind in ports() if kind is Server} == set()


async def test_a_node_has_each_port_that_a_handler_names(node: Server) -> None:
    wrong = {
        f"{handler}: {port}" for handler, port, kind in ports() if not is_a(getattr(node, port, None), kind)
    }
    assert wrong == set()
