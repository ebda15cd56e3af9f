"""For who asks the controller for what doesn't fail."""

from __future__ import annotations


def unexpected(error: BaseException) -> None:
    """An error of ours, told where `Controller.submit` has returned already."""
    raise error
