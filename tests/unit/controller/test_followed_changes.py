"""What follows from changes of the metadata, and who is told about it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.controller.metadata_log import Following
from protocol.waiting import at_once, turn


class Changed:
    """An image that has changed, and that nothing has followed yet."""

    def __init__(self, *told: Callable[[], None]) -> None:
        self.following = Following()
        self.following.has_changed = True
        self.following.told += told
        self.seen: list[str] = []

    def follow(self) -> None:
        async def one() -> None:
            self.seen.append("followed")
            return
            await turn()

        at_once(self.following.follow(one, lambda offset: self.seen.append(f"up to {offset}"), lambda: 7))


def fails() -> None:
    raise ValueError("the first")


def test_a_change_is_followed_and_all_others_are_called_though_one_of_them_fails() -> None:
    changed = Changed(fails)
    changed.following.told.append(
        lambda: changed.seen.append("behind" if changed.following.is_behind else "done")
    )
    with pytest.raises(ValueError, match="the first"):
        changed.follow()
    assert changed.seen == ["behind", "followed", "up to 7", "done"]
    assert not changed.following.is_behind
