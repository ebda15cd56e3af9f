"""The common part of all questions to a node: reading their fields, and refusing them."""

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
"""A question as it came. `ask` has its name; the other fields are its parameters."""


class QuestionError(Exception):
    """The question can't be answered. The message says why, in one line."""


def refusal(error: Error, message: str | None) -> QuestionError:
    return QuestionError(f"{error.name}: {message}" if message else error.name)


def broker_of(node: AnyNode) -> Server:
    """The node as a broker. Raises QuestionError if it is only a controller."""
    from broker.server import Server

    if not isinstance(node, Server):
        raise QuestionError("this node isn't a broker: it has neither partitions nor coordinators")
    return node


def led_here(broker: Server, topic: str) -> list[Partition]:
    """The topic's partitions that this broker leads, in order; none if there is no such topic."""
    from broker.replicas.leader import Leader

    hosted = broker.partitions.by_name.get(topic)
    here = {} if hosted is None else hosted.partitions
    return [here[index] for index in sorted(here) if isinstance(here[index].role, Leader)]


def number_in(question: Question, name: str, otherwise: int, most: int) -> int:
    """A field that has to be a number from 0 to `most`. Raises QuestionError."""
    found = question.get(name, otherwise)
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= most:
        raise QuestionError(f"{name}={found!r}: it has to be a number from 0 to {most}")
    return found


def text_in(question: Question, name: str) -> str:
    """A field that has to be a text, and not empty. Raises QuestionError."""
    found = question.get(name)
    if not isinstance(found, str) or not found:
        raise QuestionError(f"{name}={found!r}: it has to be a text")
    return found
