"""A question to a node, and how it is refused: what all that can be asked have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from broker.quorum.controller_server import ControllerNode
    from broker.replicas.partition import Partition
    from broker.server import Server
    from protocol.errors import Error

    AnyNode = Server | ControllerNode

Question = Mapping[str, Any]
"""As it came: what is asked stands under `ask`, what it takes under other names."""


class QuestionError(Exception):
    """The question can't be answered; why, in one line."""


def refusal(error: Error, message: str | None) -> QuestionError:
    return QuestionError(f"{error.name}: {message}" if message else error.name)


def broker_of(node: AnyNode) -> Server:
    """Raises QuestionError where it is a controller alone."""
    from broker.server import Server

    if not isinstance(node, Server):
        raise QuestionError("this node is no broker: it has neither partitions nor coordinators")
    return node


def led_here(broker: Server, topic: str) -> list[Partition]:
    """The topic's partitions that this broker leads, in their order; none where there is no such topic."""
    from broker.replicas.leader import Leader

    hosted = broker.partitions.by_name.get(topic)
    here = {} if hosted is None else hosted.partitions
    return [here[index] for index in sorted(here) if isinstance(here[index].role, Leader)]


def number_in(question: Question, name: str, otherwise: int, most: int) -> int:
    """Raises QuestionError where it is none, or isn't between 0 and the most."""
    found = question.get(name, otherwise)
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= most:
        raise QuestionError(f"{name}={found!r}: a number from 0 to {most} is wanted")
    return found


def text_in(question: Question, name: str) -> str:
    """Raises QuestionError where it isn't said, or isn't a text."""
    found = question.get(name)
    if not isinstance(found, str) or not found:
        raise QuestionError(f"{name}={found!r}: a text is wanted")
    return found
