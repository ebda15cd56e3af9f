"""Answers the program that started this node: a line of JSON each way, on the socket between the two.

    {"id": 7, "ask": "partition", "topic": "orders", "partition": 0}
    {"id": 7, "answer": {"leader": 2, "replicas": [2, 3, 1], "isr": [2, 3]}}
    {"id": 8, "error": "there is no partition orders-9"}
    {"id": null, "crashes": true}

When the broker is ready, it writes one line there. When the other end closes, because the parent has died in any way,
the broker stops. `QUESTIONS` has the questions to the process, `CLUSTER_QUESTIONS` those to its node. A question that
comes before the node has started is answered as soon as the process listens, and before it reports that it is ready.
The last line above is the last one of a process that a fault crashes.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Any

from broker.config.broker_definitions import JOURNAL_SIZE
from broker.controller.image import NO_LEADER
from broker.coordination.groups import OFFSETS_TOPIC
from broker.coordination.transactions import TRANSACTION_TOPIC
from broker.process.questions import Question, QuestionError, refusal, text_in
from coordinator.java.maps import partition_of_key
from protocol.errors import Error, KafkaError, error_of, stops_the_broker
from protocol.waiting import Later, carry_on, compute

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage, PartitionImage
    from broker.environment.cut_network import CuttableNetwork
    from broker.environment.movable_time import MovableTime
    from broker.faults.faults import Faults
    from broker.faults.request_journal import RequestJournal
    from broker.process.questions import AnyNode
    from broker.process.renewal import Renewal
    from broker.quorum.controller_server import ControllerNode
    from broker.server import Server
    from protocol.waiting import Waiting

log = logging.getLogger("barnabas.server")


# --- The socket ---------------------------------------------------------------------------------------------

LONGEST_LINE_BYTES = 65_536
"""The longest question, with its line end. A longer line is refused."""


class ParentTie:
    """The broker's end of the socket. Raises OSError if the descriptor isn't an open socket."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._socket.setblocking(False)
        self._line = bytearray()  # the part of a line that has come
        self._untold = bytearray()
        """Bytes that the parent has yet to take."""

    @property
    def gone(self) -> bool:
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def watch(self, on_parent_gone: Callable[[], None], asked: Callable[[bytes], None]) -> None:
        """Call `asked` on the loop with each line that comes, without its end, and `on_parent_gone` once, when the
        parent has died and its end is closed. Lines that have come before are handled within this call."""
        loop = asyncio.get_running_loop()

        def readable() -> None:
            try:
                data = self._socket.recv(4096)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                loop.remove_reader(self._socket.fileno())
                on_parent_gone()
                return
            for line in self._lines(data):
                asked(line)

        loop.add_reader(self._socket.fileno(), readable)
        readable()

    def _lines(self, data: bytes) -> Iterator[bytes]:
        """Yield the lines that are whole with this data. One that is too long is cut, so that it isn't valid JSON."""
        *whole, rest = data.split(b"\n")
        for piece in whole:
            line = bytes(self._line + piece)[:LONGEST_LINE_BYTES]
            self._line.clear()
            yield line
        self._line += rest[: max(LONGEST_LINE_BYTES - len(self._line), 0)]

    def tell_ready(self, bootstrap: str, listeners: Mapping[str, str]) -> None:
        self.tell(json.dumps({"bootstrap": bootstrap, "listeners": dict(listeners), "pid": os.getpid()}))

    def tell(self, line: str) -> None:
        """Send a line, given without its end. Bytes that the parent doesn't take at once are sent later."""
        is_waiting = bool(self._untold)
        self._untold += line.encode() + b"\n"
        if not is_waiting:
            self._tell_rest()

    def _tell_rest(self) -> None:
        try:
            while self._untold:
                del self._untold[: self._socket.send(self._untold)]
        except BlockingIOError:
            asyncio.get_running_loop().add_writer(self._socket.fileno(), self._go_on_telling)
        except OSError:  # the parent is gone, as `watch` will notice
            self._untold.clear()

    def _go_on_telling(self) -> None:
        asyncio.get_running_loop().remove_writer(self._socket.fileno())
        self._tell_rest()

    def close(self) -> None:
        self._socket.close()


# --- Questions of a test about the cluster ------------------------------------------------------------------
#
# They ask who leads a partition and which replicas are in sync, or tell the controller to change something. Any node
# answers questions about the metadata, from its own copy.

_SOME = 5  # partitions that an answer names if there are many


async def _partition(node: AnyNode, question: Question) -> Any:
    """`topic`, `partition` → `leader` (-1: none), `replicas`, `isr`, ids of brokers; whether it `is_moving`."""
    partition = _found(node, question)
    return {
        "leader": partition.leader,
        "replicas": [*partition.replicas],
        "isr": [*partition.isr],
        "is_moving": bool(partition.adding_replicas or partition.removing_replicas),
    }


async def _coordinator(node: AnyNode, question: Question) -> Any:
    """`group` or `transactional_id` → `topic`, `partition`: the partition whose leader is the coordinator. The topic is
    created when a client first looks for a coordinator; until then there is none."""
    name, key = (OFFSETS_TOPIC, "group") if "group" in question else (TRANSACTION_TOPIC, "transactional_id")
    topic = node.metadata.image.topics.get(name)
    if topic is None:
        raise QuestionError(f"there is no coordinator yet: {name} doesn't exist")
    return {"topic": name, "partition": partition_of_key(question[key], len(topic.partitions))}


async def _brokers(node: AnyNode, question: Question) -> Any:
    """→ the ids of the registered brokers that aren't fenced."""
    return sorted(each for each, broker in node.metadata.image.brokers.items() if not broker.fenced)


async def _out_of_sync(node: AnyNode, question: Question) -> Any:
    """→ `count`: how many partitions have no leader, or not all of their replicas in sync; `some`: a few of these
    partitions. Replicas on the brokers in `absent` count as out of sync, even if the metadata doesn't say so yet."""
    found = [*_lagging(node, {*map(int, question.get("absent", ()))})]
    return {"count": len(found), "some": found[:_SOME]}


def _lagging(node: AnyNode, absent: set[int]) -> Iterator[str]:
    for name, topic in node.metadata.image.topics.items():
        for index, partition in topic.partitions.items():
            if partition.leader == NO_LEADER or {*partition.isr} - absent != {*partition.replicas}:
                yield f"{name}-{index}"


async def _reassign(node: AnyNode, question: Question) -> Any:
    """`topic`, `partition`, `replicas`: begin to move the partition to these brokers, the preferred leader first. Only
    the controller answers."""
    from broker.controller.partition_requests import reassigned_partitions
    from protocol.messages.cluster_admin import (
        AlterPartitionReassignmentsRequest,
        ReassignablePartition,
        ReassignableTopic,
    )

    _found(node, question)
    request = AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(
                name=question["topic"],
                partitions=[
                    ReassignablePartition(
                        partition_index=question["partition"], replicas=[*map(int, question["replicas"])]
                    )
                ],
            )
        ]
    )

    decide = partial(
        reassigned_partitions,
        request=request,
        own=node.own_settings,
        can_be_given=node.topics.has_room,
    )
    result = (await _decided(node, decide)).responses[0].partitions[0]
    return _outcome(result.error_code, result.error_message)


async def _elect(node: AnyNode, question: Question) -> Any:
    """`topic`, `partition`: elect the preferred leader, if it doesn't lead. Only the controller answers."""
    from broker.controller.partition_requests import PREFERRED, elected_leaders
    from protocol.messages.cluster_admin import ElectLeadersRequest, ElectLeadersTopic

    _found(node, question)
    request = ElectLeadersRequest(
        election_type=PREFERRED,
        topic_partitions=[ElectLeadersTopic(topic=question["topic"], partitions=[question["partition"]])],
    )

    decide = partial(elected_leaders, request=request, own=node.own_settings)
    result = (await _decided(node, decide)).replica_election_results[0].partition_result[0]
    needless = result.error_code == Error.ELECTION_NOT_NEEDED
    return True if needless else _outcome(result.error_code, result.error_message)


async def _decided(node: AnyNode, decide: Callable[[ClusterImage], Any]) -> Any:
    """The controller's answer. Raises QuestionError if it refuses, or isn't here."""
    if not node.metadata.is_leader:
        raise QuestionError("this node isn't the controller")
    controller = node.controller
    answer: Later[Any] = Later()

    async def decided() -> None:
        answer.reply(await controller.submit_own(decide, log, "a request by the control socket failed"))

    controller.begin(decided())
    found = await answer
    if isinstance(found, KafkaError):
        raise refusal(found.error, found.message)
    return found


def _found(node: AnyNode, question: Question) -> PartitionImage:
    topic = node.metadata.image.topics.get(question["topic"])
    partition = None if topic is None else topic.partitions.get(question["partition"])
    if partition is None:
        raise QuestionError(f"there is no partition {question['topic']}-{question['partition']}")
    return partition


def _outcome(code: int, message: str | None) -> bool:
    """True, or raises QuestionError."""
    if code != Error.NONE:
        raise refusal(error_of(code), message)
    return True


# --- Rights and users ---------------------------------------------------------------------------------------
#
# A client with every right could do the same by requests.


async def _alter_acls(node: AnyNode, question: Question) -> Any:
    """`create`: ACLs to create, `delete`: filters of ACLs to delete → the deleted ACLs. All or none. Only the
    controller answers."""
    from broker.process.security_questions import decision_on_acls

    decide = decision_on_acls(node, question.get("create", ()), question.get("delete", ()))
    return await _decided(node, decide)


async def _acls_in_force(node: AnyNode, question: Question) -> Any:
    """`present`, `absent`: ACLs → whether this node's authorizer has the former and not the latter."""
    from broker.process.security_questions import acls_in_force

    return acls_in_force(node, question.get("present", ()), question.get("absent", ()))


async def _acls(node: AnyNode, question: Question) -> Any:
    """`principal` → its ACLs."""
    from broker.process.security_questions import known_acls

    return known_acls(node, question["principal"])


async def _add_users(node: AnyNode, question: Question) -> Any:
    """`users`: passwords by name. From then on each user can sign in by SCRAM. Only the controller answers."""
    from broker.process.security_questions import decision_on_users

    decide = decision_on_users(node, question["users"])
    return await _decided(node, decide)


async def _renew_certificates(node: AnyNode, question: Question) -> Any:
    """Reload keys and certificates from their files → null, once they are in use."""
    for failure in node.key_stores.follow(node.config):
        raise QuestionError(str(failure)) from failure
    return None


async def _users_known(node: AnyNode, question: Question) -> Any:
    """`users`: names → whether all can sign in to this node by SCRAM."""
    from broker.process.security_questions import users_known

    return users_known(node, question["users"])


async def _denials(node: AnyNode, question: Question) -> Any:
    """`behind`: the number of a denial → some later ones (see `broker.process.security_questions.Denials`)."""
    from broker.process.security_questions import denials

    return denials(node, int(question.get("behind", 0)))


CLUSTER_QUESTIONS: Mapping[str, Callable[[AnyNode, Question], Waiting[Any]]] = {
    "acls": _acls,
    "acls_in_force": _acls_in_force,
    "add_users": _add_users,
    "alter_acls": _alter_acls,
    "brokers": _brokers,
    "coordinator": _coordinator,
    "denials": _denials,
    "elect": _elect,
    "out_of_sync": _out_of_sync,
    "partition": _partition,
    "reassign": _reassign,
    "renew_certificates": _renew_certificates,
    "users_known": _users_known,
}
"""The questions by name. Each raises QuestionError, LookupError (KeyError if a field is missing), or TypeError for a
field that makes no sense."""


# --- Questions to the process -------------------------------------------------------------------------------


class Control:
    """Answers the questions to one process."""

    def __init__(
        self,
        tell: Callable[[str], None],
        stop: Callable[[bool], None],
        begin_anew: Callable[[Renewal], None],
        time: MovableTime,
        network: CuttableNetwork | None,
    ) -> None:
        """`tell` writes a line. `stop` stops the node; with True other nodes take over its partitions first.
        `begin_anew` puts another node in its place. `time`: the node's time. `network`: the node's network, if its
        connections to other nodes can be cut."""
        self.node: Server | ControllerNode | None = None
        """The node, once it has started."""
        self.begin_anew = begin_anew
        self.time = time
        self.faults: Faults | None = None
        self.journal: RequestJournal | None = None
        self.stop = stop
        self.network = network
        self.serve: Callable[[str], Later[Any]] | None = None
        """Serve clients that know the token over HTTP, and return the address. Raises QuestionError."""
        self._tell = tell

    def began(self, node: Server | ControllerNode) -> None:
        """Ask this node from now on. It has no armed faults."""
        self.node = node
        self.faults = self.journal = None
        if size := node.config.get_int(JOURNAL_SIZE):
            from broker.faults.node_faults import faults_of, journal_of
            from broker.process.this_process import ThisProcess

            self.journal = journal_of(node, size)
            self.faults = faults_of(node, ThisProcess(self.tell_crash), self.journal)
        if node.config.authorizer is not None:
            from broker.process.security_questions import keep_denials

            keep_denials(node)

    def tell_crash(self) -> None:
        """Tell that a fault crashes this process now: nobody else could say whether it did or somebody killed it."""
        self._tell(json.dumps({"id": None, "crashes": True}))

    def asked(self, line: bytes) -> None:
        """Answer a line that has come, in this call or a later one.

        If that fails, the error is the answer. Only a broken invariant ends the node."""
        carry_on(self._answer_line(line))

    async def _answer_line(self, line: bytes) -> None:
        try:
            question = json.loads(line)
            if not isinstance(question, dict):
                raise ValueError("a question is an object")
        except ValueError as error:
            self._tell_answer(None, QuestionError(str(error)))
            return
        asked_id = question.get("id")
        try:
            self._tell_answer(asked_id, await self.answered(question))
        except QuestionError as error:
            self._tell_answer(asked_id, error)
        except Exception as error:
            self._tell_answer(asked_id, QuestionError(repr(error)))
            raise

    async def answered(self, question: Question) -> Any:
        """The answer to a question. Raises QuestionError, or the error of a broken invariant, which ends the node."""
        try:
            return await _answered(self, question)
        except ValueError as error:
            raise QuestionError(str(error)) from error
        except QuestionError:
            raise
        except Exception as error:
            # Only its name is logged: the rest may have passwords.
            log.error("a question to this node failed: %r", question.get("ask"), exc_info=error)
            if stops_the_broker(error):
                raise
            raise QuestionError(repr(error)) from error

    def _tell_answer(self, asked_id: object, answer: Any) -> None:
        said = {"error": str(answer)} if isinstance(answer, QuestionError) else {"answer": answer}
        self._tell(json.dumps({"id": asked_id, **said}))


async def _answered(control: Control, question: Question) -> Any:
    """The answer to a question, as a JSON value. Raises QuestionError."""
    name = question.get("ask")
    ask = QUESTIONS.get(name) if isinstance(name, str) else None
    if ask is not None:
        return await ask(control, question)
    of_node = _asked_of_node(name, control.time) if isinstance(name, str) else None
    if of_node is None:
        known = ", ".join(sorted(all_questions()))
        raise QuestionError(f"there is no question {name!r}; there are {known}")
    node = _started(control)
    try:
        return await of_node(node, question)
    except KafkaError as error:
        raise refusal(error.error, error.message) from error
    except (KeyError, TypeError, AttributeError) as error:
        raise QuestionError(f"{name}: {error!r} is missing or makes no sense") from error
    except LookupError as error:
        raise QuestionError(str(error)) from error


def _asked_of_node(name: str, time: MovableTime) -> Callable[[AnyNode, Question], Waiting[Any]] | None:
    """The function for a question to the node, or None. `looking_in` and `now_verbs` are loaded at their first
    question, so that no start waits for them."""
    if name in CLUSTER_QUESTIONS:
        return CLUSTER_QUESTIONS[name]
    from broker.process.looking_in import LOOKING_IN
    from broker.process.now_verbs import NOW_VERBS

    verb = NOW_VERBS.get(name)
    if verb is None:
        return LOOKING_IN.get(name)
    return lambda node, question: verb(node, question, time)


def all_questions() -> Mapping[str, Callable[..., Waiting[Any]]]:
    """All questions, by name."""
    from broker.process.looking_in import LOOKING_IN
    from broker.process.now_verbs import NOW_VERBS

    return {**QUESTIONS, **CLUSTER_QUESTIONS, **LOOKING_IN, **NOW_VERBS}


def _started(control: Control) -> AnyNode:
    """The node. Raises QuestionError if it hasn't started yet."""
    if control.node is None:
        raise QuestionError("the node hasn't started yet")
    return control.node


async def _cut(control: Control, question: Question) -> Any:
    """`{"cuts": [{"host": …, "port": …, "incoming": true, "outgoing": false, "delay_ms": 0}, …]}`: cut these
    connections from now on, and no others (see `broker.environment.cut_network`)."""
    if control.network is None:
        raise QuestionError("this node connects to no other node")
    from broker.environment.cut_network import Cut

    try:
        cuts = {
            (str(each["host"]), int(each["port"])): Cut(
                bool(each["incoming"]), bool(each["outgoing"]), int(each.get("delay_ms", 0)) / 1000
            )
            for each in question["cuts"]
        }
    except (KeyError, TypeError, ValueError) as error:
        raise QuestionError(f"cut: {error!r}") from error
    control.network.cut(cuts)
    return True


async def _stop(control: Control, question: Question) -> Any:
    """Stop the node. `{"leave": false}`: don't wait until other nodes have taken over its partitions."""
    control.stop(bool(question.get("leave", True)))
    return True


async def _serve_http(control: Control, question: Question) -> Any:
    """`token`: serve clients that know it over HTTP from now on → `host` and `port`, always the same for a token."""
    if control.serve is None:
        raise QuestionError("only a process that a program has started can be served over HTTP")
    return await control.serve(text_in(question, "token"))


# --- Beginning anew -------------------------------------------------------------------------------------------


async def _begin_anew(control: Control, question: Question) -> Any:
    """Begin anew, with an empty folder or with `copy`, a folder → where the node listens, once it serves
    (`broker.process.renewal`)."""
    from broker.process.renewal import Renewal, RenewalError, check_can_begin_anew

    node, copy = _started(control), question.get("copy")
    try:
        check_can_begin_anew(node.config, copy)
    except RenewalError as error:
        raise QuestionError(str(error)) from None
    if control.faults is not None:
        control.faults.disarm_all()
    begun: Later[Any] = Later()
    control.begin_anew(Renewal(copy, begun.reply))
    return await begun


async def _copy(control: Control, question: Question) -> Any:
    """`to`: a folder that doesn't exist; copy the node's files to it → how many bytes it has now."""
    from broker.process.renewal import Copy, RenewalError

    node = _started(control)
    try:
        copy = Copy(node.config.log_dirs, question["to"])

        async def completed() -> int:
            return await compute(copy.complete)

        return await node.turns.to_the_end(completed())
    except (RenewalError, OSError) as error:
        raise QuestionError(str(error)) from None


# --- Time -----------------------------------------------------------------------------------------------------

_MOST_MS = 10 * 365 * 24 * 3_600_000


async def _clock(control: Control, question: Question) -> Any:
    """`do`: `advance` by `ms`, `skip_to_next` to when something is next due, `freeze`, `run`, or nothing → `now_ms`,
    and whether the clock `stands`."""
    moved, do = control.time, question.get("do")

    if do in ("advance", "skip_to_next"):
        by_ms = question.get("ms") if do == "advance" else ceil((moved.next_s() or 0.0) * 1000)
        if isinstance(by_ms, bool) or not isinstance(by_ms, int) or not 0 <= by_ms <= _MOST_MS:
            raise QuestionError(f"ms={by_ms!r}: milliseconds, from 0 to ten years")
        await moved.moved(by_ms * 1_000_000)
    elif do == "freeze":
        moved.freeze()
    elif do == "run":
        moved.run()
    elif do is not None:
        raise QuestionError(f"do={do!r}: it can be advance, skip_to_next, freeze or run")
    return {"now_ms": moved.now_ms(), "stands": moved.stands}


# --- Faults ---------------------------------------------------------------------------------------------------


def _faults(control: Control) -> Faults:
    """The node's faults, made when first asked for. Raises QuestionError."""
    node = _started(control)
    if control.faults is None:
        from broker.faults.node_faults import faults_of
        from broker.process.this_process import ThisProcess

        control.faults = faults_of(node, ThisProcess(control.tell_crash))
    return control.faults


async def _arm_fault(control: Control, question: Question) -> Any:
    """`fault`: what goes wrong, for which requests, and when (`broker.faults.faults`) → its number."""
    from broker.faults.armed_fault import FaultError

    said = question.get("fault")
    if not isinstance(said, Mapping):
        raise QuestionError("fault: it has to be an object")
    try:
        return _faults(control).arm(said)
    except FaultError as error:
        raise QuestionError(str(error)) from None


async def _disarm_fault(control: Control, question: Question) -> Any:
    """`number`: disarm the fault, so that requests that it holds go on → its last state."""
    return _faults(control).disarm(_number_of(control, question))


async def _release_fault(control: Control, question: Question) -> Any:
    """`number`: let the requests that the fault holds go on → how many these were."""
    return _faults(control).release(_number_of(control, question))


async def _fault(control: Control, question: Question) -> Any:
    """`number` → `seen`, `fired` and `standing`: how many requests the fault has matched, on how many it was carried
    out, and how many it holds."""
    return _faults(control).state(_number_of(control, question))


async def _all_faults(control: Control, question: Question) -> Any:
    """→ the states of all armed faults, each as the question `fault` gives it, with its number as `fault`."""
    return _faults(control).states()


def _number_of(control: Control, question: Question) -> int:
    number = question.get("number")
    known = [state["fault"] for state in _faults(control).states()]
    if isinstance(number, int) and number in known:
        return number
    raise QuestionError(f"there is no fault {number!r}; there are {', '.join(map(str, known)) or 'none'}")


async def _journal(control: Control, question: Question) -> Any:
    """`about`: which requests, in the words of a fault; default: all. `after`: a number → `requests`: the first ones
    after that number, oldest first; `next`: the `after` of the next page, or null; `lost`: how many aren't kept any
    more."""
    from broker.faults.armed_fault import FaultError

    _started(control)
    if control.journal is None:
        raise QuestionError(f"this node keeps no journal: {JOURNAL_SIZE} sets how many requests it keeps")
    about, after = question.get("about", {}), question.get("after", 0)
    if not isinstance(about, Mapping) or isinstance(after, bool) or not isinstance(after, int) or after < 0:
        raise QuestionError("about has to be an object, and after a number")
    try:
        return control.journal.page(about, after)
    except FaultError as error:
        raise QuestionError(str(error)) from None


QUESTIONS: dict[str, Callable[[Control, Question], Waiting[Any]]] = {
    "arm_fault": _arm_fault,
    "begin_anew": _begin_anew,
    "clock": _clock,
    "copy": _copy,
    "cut": _cut,
    "disarm_fault": _disarm_fault,
    "fault": _fault,
    "faults": _all_faults,
    "journal": _journal,
    "release_fault": _release_fault,
    "serve_http": _serve_http,
    "stop": _stop,
}
"""The questions to the process, by name."""
