"""Applies all masks to answers."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from .cluster_masks import CLUSTER_MASKS
from .mask_actions import Names
from .masks import MASKS, Mask

ALL_MASKS = MASKS + CLUSTER_MASKS


def masked(api: str, value: Any, names: Names, script: str) -> Any:
    """Return an answer of `api`, as plain values, after all masks."""
    return _masked(value, api, script, names)


@cache
def _masks_of(script: str, path: str) -> tuple[Mask, ...]:
    """Cached: an answer has the same path many times, and a script the same answer."""
    return tuple(
        mask for mask in ALL_MASKS if fnmatchcase(script, mask.scripts) and fnmatchcase(path, mask.where)
    )


def _masked(value: Any, path: str, script: str, names: Names) -> Any:
    for mask in _masks_of(script, path):
        value = mask.action(value, names)
    # Lists are sorted before their contents get names.
    if isinstance(value, list):
        return [_inside(element, path, script, names) for element in value]
    return _inside(value, path, script, names)


def _inside(value: Any, path: str, script: str, names: Names) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: _masked(inner, f"{path}.{name}", script, names) for name, inner in value.items()}
