"""What is asked of a node by the program that started it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Question = Mapping[str, Any]
"""As it came: what is asked stands under `ask`, what it takes under other names."""


class QuestionError(Exception):
    """The question can't be answered; why, in one line."""


TellAnswer = Callable[[Any], None]
"""Called once: with the answer, anything that JSON has, or with a QuestionError."""
