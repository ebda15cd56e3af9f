"""What the program that started this node asks of it: a line of JSON each way, by the socket that ties the two.

    {"id": 7, "ask": "partition", "topic": "orders", "partition": 0}
    {"id": 7, "answer": {"leader": 2, "replicas": [2, 3, 1], "isr": [2, 3]}}
    {"id": 8, "error": "there is no partition orders-9"}

What there is to ask is in `QUESTIONS`, and of the cluster in `broker.process.cluster_questions`. What was asked before
the node has started is done as soon as the process listens, and told before it says that it is ready.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from broker.process.question import Question, QuestionError, TellAnswer
from protocol.errors import stops_the_broker

if TYPE_CHECKING:
    from broker.environment.cut_network import CuttableNetwork
    from broker.quorum.controller_node import ControllerNode
    from broker.server import Server

log = logging.getLogger("barnabas.server")


class Control:
    """Of one process."""

    def __init__(
        self, tell: Callable[[str], None], stop: Callable[[bool], None], network: CuttableNetwork | None
    ) -> None:
        """`tell` writes a line. `stop` has the node stop: True where others are to take over what it leads before.
        `network`: the node's, where ways to others can be cut."""
        self.node: Server | ControllerNode | None = None
        """Once it has started."""
        self.stop = stop
        self.network = network
        self._tell = tell

    def asked(self, line: bytes) -> None:
        """One line that came. What it asks for is answered in this call or a later one. What goes wrong meanwhile is
        the answer: it's no reason for the node to end, but where an invariant is broken."""
        asked_id: object = None
        try:
            question = json.loads(line)
            if not isinstance(question, dict):
                raise QuestionError("a question is an object")
            asked_id = question.get("id")
            _answer(self, question, partial(self._reply, asked_id))
        except (ValueError, QuestionError) as error:
            self._reply(asked_id, QuestionError(str(error)))
        except Exception as error:
            log.error("a question of the program that started this node failed: %r", line, exc_info=error)
            self._reply(asked_id, QuestionError(repr(error)))
            if stops_the_broker(error):
                raise

    def _reply(self, asked_id: object, answer: Any) -> None:
        said = {"error": str(answer)} if isinstance(answer, QuestionError) else {"answer": answer}
        self._tell(json.dumps({"id": asked_id, **said}))


def _answer(control: Control, question: Question, reply: TellAnswer) -> None:
    """Raises QuestionError."""
    name = question.get("ask")
    ask = QUESTIONS.get(name) if isinstance(name, str) else None
    if ask is not None:
        ask(control, question, reply)
        return
    # Here, so that no start waits for it.
    from broker.process.cluster_questions import CLUSTER_QUESTIONS

    of_cluster = CLUSTER_QUESTIONS.get(name) if isinstance(name, str) else None
    if of_cluster is None:
        known = ", ".join(sorted([*QUESTIONS, *CLUSTER_QUESTIONS]))
        raise QuestionError(f"there is no question {name!r}; there are {known}")
    if control.node is None:
        raise QuestionError("the node hasn't started yet")
    try:
        of_cluster(control.node, question, reply)
    except (KeyError, TypeError, AttributeError) as error:
        raise QuestionError(f"{name}: {error!r} is missing or makes no sense") from error


def _cut(control: Control, question: Question, reply: TellAnswer) -> None:
    """`{"cuts": [{"host": …, "port": …, "incoming": true, "outgoing": false}, …]}`: these and no others are cut from
    now on (see `broker.environment.cut_network`)."""
    if control.network is None:
        raise QuestionError("this node connects to nobody")
    from broker.environment.cut_network import Cut

    try:
        cuts = {
            (str(each["host"]), int(each["port"])): Cut(bool(each["incoming"]), bool(each["outgoing"]))
            for each in question["cuts"]
        }
    except (KeyError, TypeError, ValueError) as error:
        raise QuestionError(f"cut: {error!r}") from error
    control.network.cut(cuts)
    reply(True)


def _stop(control: Control, question: Question, reply: TellAnswer) -> None:
    """`{"leave": false}`: without others taking over first what this node leads."""
    reply(True)
    control.stop(bool(question.get("leave", True)))


QUESTIONS: dict[str, Callable[[Control, Question, TellAnswer], None]] = {"cut": _cut, "stop": _stop}
"""By name: what is asked of the process."""
