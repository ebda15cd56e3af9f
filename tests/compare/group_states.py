"""A walk through the states of groups: each request meets each state, in a group of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from .group_requests import Fields
from .play import Play

S = TypeVar("S")

Asked = tuple[str, int, Fields]
"""API, version, request."""

AskedOf = Callable[[S, str, int], dict[str, Asked]]
"""Takes the scene, a group and the epoch of its member `one`. Returns the requests by the names of their cases."""


def listed(kind: str, *states: str) -> dict[str, Asked]:
    """ListGroups for groups of a type, by each of these states."""
    return {
        f"listed as {state}": ("ListGroups", 5, {"states_filter": [state], "types_filter": [kind]})
        for state in states
    }


def walk(
    play: Play,
    scene: S,
    states: Mapping[str, Callable[[S, str], int]],
    asked_of: AskedOf[S],
    *,
    prepare: Callable[[str], None],
    describe: Callable[[Play, str, str], object],
    forget: Callable[[Play, str], None],
) -> None:
    """`states`: how a group gets into each state; these return the epoch of its member `one`. `prepare` waits for what
    the group needs, `describe` shows what became of it, and `forget` deletes it, so that lists of groups have one."""
    for state, enter in states.items():
        for number, case in enumerate(asked_of(scene, "", 0)):
            group = play.name(f"{state.replace(' ', '-')}-{number}")
            prepare(group)
            epoch = enter(scene, group)
            api, version, fields = asked_of(scene, group, epoch)[case]
            play.ask(f"{state}, {case}", api, version, fields)
            describe(play, f"{state}, {case}: described", group)
            forget(play, group)
