"""The attributes of a node that handlers use."""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from collections.abc import Iterable


def ports_of(handlers: Iterable[str]) -> dict[str, set[str]]:
    """Return, by handler, the attributes of `node` that its `handle` names."""
    found: dict[str, set[str]] = {}
    for handler in handlers:
        handle = importlib.import_module(f"broker.handlers.{handler}").handle
        assert [*inspect.signature(handle).parameters] == ["node", "context", "request"], handler
        found[handler] = {
            each.attr
            for each in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(handle))))
            if isinstance(each, ast.Attribute)
            and isinstance(each.value, ast.Name)
            and each.value.id == "node"
        }
    return found
