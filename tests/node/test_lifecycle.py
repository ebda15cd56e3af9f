"""A broker's life as its controller knows it: every state, with every answer that may come in it."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from broker.controller.image import ClusterImage
from broker.controller.metadata_versions import DIRECTORIES_SINCE, METADATA_VERSION
from broker.peers.joined_cluster import RegistrationTracker
from broker.peers.lifecycle import LONGEST_SHUTDOWN_S, BrokerLifecycle, BrokerState, Listening
from protocol.errors import Error, KafkaError
from protocol.messages.broker_to_controller import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from protocol.messages.metadata_records import FeatureLevelRecord, RegisterBrokerRecord
from protocol.wire.schema import Message
from tests.support.controller_channel import Channel, Timers

INTERVAL_MS = 2_000
EPOCH = 77
STARTING, RECOVERY, RUNNING = BrokerState.STARTING, BrokerState.RECOVERY, BrokerState.RUNNING
PENDING, STOPPING = BrokerState.PENDING_CONTROLLED_SHUTDOWN, BrokerState.SHUTTING_DOWN


class Broker:
    """A broker's lifecycle. `told` lists what it has told the node."""

    def __init__(self, cordoned: Any = lambda: None, *, is_controlled: bool = True) -> None:
        self.timers, self.channel = Timers(), Channel()
        self.told: list[str] = []
        self.metadata_offset = 5
        self.life = BrokerLifecycle(
            BrokerRegistrationRequest(broker_id=7),
            self.channel,  # type: ignore[arg-type]
            self.timers,
            lambda: self.metadata_offset,
            Listening(
                caught_up=lambda: self.told.append("caught up"),
                unfenced=lambda: self.told.append("unfenced"),
                let_go=lambda: self.told.append("let go"),
                not_registered=lambda reason: self.told.append(f"not registered: {reason}"),
            ),
            heartbeat_interval_ms=INTERVAL_MS,
            is_controlled=is_controlled,
            cordoned=cordoned,
        )

    def beat(self) -> BrokerHeartbeatRequest:
        """Have the next heartbeat be sent, and return it."""
        if not self.channel.is_busy:
            self.timers.next()
        assert isinstance(self.channel.request, BrokerHeartbeatRequest)
        return self.channel.request

    def answer(self, *, caught_up: bool = True, fenced: bool = False, shut_down: bool = False) -> None:
        self.channel.answer(
            BrokerHeartbeatResponse(is_caught_up=caught_up, is_fenced=fenced, should_shut_down=shut_down)
        )

    def reach(self, state: BrokerState) -> Broker:
        """Bring the broker to this state, with a heartbeat in flight."""
        self.life.start()
        self.channel.answer(BrokerRegistrationResponse(broker_epoch=EPOCH))
        self.beat()
        if state is STARTING:
            return self
        self.answer()
        self.beat()
        if state is RECOVERY:
            return self
        self.life.ready()
        self.timers.next()  # it waits for the answer of the one under way
        self.answer(fenced=True)
        self.beat()
        self.answer()
        if state is RUNNING:
            self.beat()
            return self
        self.life.begin_controlled_shutdown()
        self.beat()
        if state is STOPPING:
            self.answer(shut_down=True)
        return self


AFTER: dict[tuple[BrokerState, bool, bool, bool], tuple[BrokerState, str, int | None]] = {}
"""The next state, what is told, and in how many ms the next heartbeat goes (None: never), by state and what the answer
says (caught up, fenced, should shut down)."""
for _caught_up, _fenced, _shut_down in product((False, True), repeat=3):
    _said = _caught_up, _fenced, _shut_down
    AFTER[STARTING, *_said] = (RECOVERY, "caught up", 10) if _caught_up else (STARTING, "", 10)
    AFTER[RECOVERY, *_said] = (RECOVERY, "", INTERVAL_MS) if _fenced else (RUNNING, "unfenced", INTERVAL_MS)
    AFTER[RUNNING, *_said] = (RUNNING, "", INTERVAL_MS)
    AFTER[PENDING, *_said] = (STOPPING, "let go", None) if _shut_down else (PENDING, "", 50)


@pytest.mark.parametrize("cell", AFTER, ids=lambda cell: f"{cell[0].name}-{cell[1:]}")
def test_every_state_with_every_answer(cell: tuple[BrokerState, bool, bool, bool]) -> None:
    state, caught_up, fenced, shut_down = cell
    broker = Broker().reach(state)
    assert broker.life.state is state
    broker.told.clear()
    broker.answer(caught_up=caught_up, fenced=fenced, shut_down=shut_down)
    next_state, told, wait_ms = AFTER[cell]
    assert broker.life.state is next_state
    assert broker.told == ([told] if told else [])
    if wait_ms is None:
        assert not broker.timers.waiting
    else:
        assert broker.timers.next() == wait_ms
        assert broker.channel.is_busy


@pytest.mark.parametrize("state", [STARTING, RECOVERY, RUNNING, PENDING])
@pytest.mark.parametrize(
    "failure",
    [
        KafkaError(Error.REQUEST_TIMED_OUT),
        KafkaError(Error.UNSUPPORTED_VERSION),
        BrokerHeartbeatResponse(error_code=Error.STALE_BROKER_EPOCH),
        BrokerHeartbeatResponse(error_code=12345),
    ],
    ids=str,
)
def test_a_heartbeat_that_fails_is_sent_again_after_the_interval(state: BrokerState, failure: object) -> None:
    broker = Broker().reach(state)
    broker.told.clear()
    broker.channel.answer(failure)
    assert (broker.life.state, broker.told) == (state, [])
    assert broker.timers.next() == INTERVAL_MS
    assert isinstance(broker.channel.request, BrokerHeartbeatRequest)


def test_the_reason_that_heartbeats_fail_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker().reach(RUNNING)
    stale = BrokerHeartbeatResponse(error_code=Error.STALE_BROKER_EPOCH)
    timed_out = KafkaError(Error.REQUEST_TIMED_OUT, "it isn't there")
    good = BrokerHeartbeatResponse(is_caught_up=True)
    for answer in (stale, stale, timed_out, stale, good, stale):
        broker.channel.answer(answer)
        broker.beat()
    meant = (
        "the controller refuses with STALE_BROKER_EPOCH: "
        "another broker has registered with node.id=7 since, or this one was unregistered"
    )
    told = [record.args[0] for record in caplog.records if "heartbeat" in record.msg and record.args]
    assert told == [meant, "it isn't there", meant, meant]


def test_the_contents_of_a_heartbeat() -> None:
    broker = Broker(cordoned=lambda: [b"c" * 16])
    broker.life.start()
    assert broker.channel.request.broker_id == 7
    assert broker.channel.timeout_ms == INTERVAL_MS
    broker.channel.answer(BrokerRegistrationResponse(broker_epoch=EPOCH))
    said = broker.beat()
    assert (said.broker_id, said.broker_epoch, said.current_metadata_offset) == (7, EPOCH, 5)
    assert (said.want_fence, said.want_shut_down, said.cordoned_log_dirs) == (True, False, None)
    broker.metadata_offset = 6
    broker.answer()
    assert broker.beat().current_metadata_offset == 6
    assert broker.beat().cordoned_log_dirs is None
    broker.life.ready()
    broker.timers.next()
    broker.answer(fenced=True)
    said = broker.beat()
    assert (said.want_fence, said.cordoned_log_dirs) == (False, [b"c" * 16])
    broker.answer()
    broker.life.begin_controlled_shutdown()
    assert broker.beat().want_shut_down


def test_a_registration_that_is_refused_is_sent_again_until_it_is_too_late(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = Broker()
    broker.life.start()
    for refusal in (
        BrokerRegistrationResponse(error_code=Error.DUPLICATE_BROKER_REGISTRATION),
        KafkaError(Error.REQUEST_TIMED_OUT, "controller:9093: refused"),
    ):
        broker.channel.answer(refusal)
        assert broker.timers.next() == INTERVAL_MS
        assert isinstance(broker.channel.request, BrokerRegistrationRequest)
    while broker.life.state is STARTING:
        broker.channel.answer(BrokerRegistrationResponse(error_code=Error.INVALID_REGISTRATION))
        broker.timers.next()
    assert broker.timers.now_s == 60
    assert broker.told == ["not registered: the controller refuses with INVALID_REGISTRATION"]
    assert not broker.timers.waiting
    said = [each.partition("trying again: ")[2] for each in caplog.messages]
    assert said == [
        "the controller refuses with DUPLICATE_BROKER_REGISTRATION: another broker has node.id=7, or had it a moment"
        " ago and its session isn't over",
        "controller:9093: refused",
        "the controller refuses with INVALID_REGISTRATION",
    ]


@pytest.mark.parametrize(
    ("trouble", "reason"), [("nobody is there", "nobody is there"), ("", "no controller has answered")]
)
def test_a_start_given_up_before_any_answer_reports_the_known_reason(trouble: str, reason: str) -> None:
    broker = Broker()
    broker.life.start()
    broker.channel.trouble = trouble
    broker.timers.next()
    assert broker.told == [f"not registered: {reason}"]


def test_once_it_is_registered_it_is_never_too_late() -> None:
    broker = Broker().reach(RUNNING)
    broker.life.register_again()
    broker.answer()
    while broker.timers.now_s < 200:
        broker.timers.next()
        broker.channel.answer(KafkaError(Error.REQUEST_TIMED_OUT))
    assert (broker.life.state, broker.told) == (RUNNING, ["caught up", "unfenced"])


def test_a_failed_directory_is_reported_at_once_and_forever() -> None:
    broker = Broker().reach(RUNNING)
    broker.life.lost_directory(b"d" * 16)
    broker.timers.next()
    broker.answer()  # answers a heartbeat that did not say it
    assert not broker.life.knows_lost(b"d" * 16)
    assert broker.timers.next() == 0
    assert broker.channel.request.offline_log_dirs == [b"d" * 16]
    broker.answer()
    assert broker.life.knows_lost(b"d" * 16)
    assert broker.beat().offline_log_dirs == [b"d" * 16]


@pytest.mark.parametrize("state", [STARTING, RECOVERY])
def test_a_broker_that_is_not_running_is_let_go_at_once(state: BrokerState) -> None:
    broker = Broker().reach(state)
    broker.life.begin_controlled_shutdown()
    assert broker.life.state is STOPPING
    assert broker.told[-1] == "let go"
    assert not broker.timers.waiting
    assert not broker.channel.is_busy


def test_a_shutdown_that_is_not_to_be_controlled_waits_for_nobody() -> None:
    broker = Broker(is_controlled=False).reach(RUNNING)
    broker.told.clear()
    broker.life.begin_controlled_shutdown()
    assert (broker.life.state, broker.told) == (STOPPING, ["let go"])
    assert not broker.timers.waiting


def test_a_shutdown_that_was_begun_is_not_begun_again() -> None:
    broker = Broker().reach(PENDING)
    broker.life.begin_controlled_shutdown()
    assert broker.life.state is PENDING
    broker.answer()
    assert broker.timers.next() == 50
    broker.answer()
    assert broker.timers.next() == INTERVAL_MS  # sooner only after the first answer


def test_a_stopped_broker_sends_nothing() -> None:
    broker = Broker().reach(RUNNING)
    broker.life.stop()
    broker.life.ready()
    broker.life.lost_directory(b"d" * 16)
    broker.life.register_again()
    assert not broker.timers.waiting
    assert not broker.channel.is_busy


def test_after_a_failure_nothing_is_sent_at_once_whatever_has_changed() -> None:
    broker = Broker().reach(RUNNING)
    broker.life.lost_directory(b"d" * 16)
    broker.timers.next()
    broker.channel.answer(KafkaError(Error.REQUEST_TIMED_OUT))
    assert broker.timers.next() == INTERVAL_MS
    broker.answer()
    assert broker.timers.next() == INTERVAL_MS


def test_a_broker_is_let_go_only_once() -> None:
    broker = Broker().reach(STARTING)
    for _ in range(3):
        broker.life.begin_controlled_shutdown()
    assert broker.told == ["let go"]


def test_a_callback_may_change_the_next_request() -> None:
    broker = Broker().reach(RECOVERY)
    object.__setattr__(broker.life._listening, "unfenced", broker.life.begin_controlled_shutdown)
    broker.life.ready()
    broker.timers.next()
    broker.answer(fenced=True)
    broker.beat()
    broker.answer()
    assert broker.timers.next() == 0
    assert broker.channel.request.want_shut_down


@pytest.mark.limit("broker.peers.lifecycle.LONGEST_SHUTDOWN_S")
def test_a_shutdown_waits_five_minutes_at_most(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker().reach(PENDING)
    broker.told.clear()
    passed_ms = 0
    while not broker.told:
        passed_ms += broker.timers.next()
        if broker.channel.is_busy:
            broker.answer(shut_down=False)
    assert broker.told == ["let go"]
    assert passed_ms == LONGEST_SHUTDOWN_S * 1_000
    assert "no other broker has taken over this broker's partitions in 300 s" in caplog.text
    assert not broker.timers.waiting


def test_a_registration_that_names_no_directories_is_made_again_once_the_cluster_knows_them() -> None:
    broker = Broker().reach(RUNNING)
    broker.answer()
    image, following = ClusterImage(), SimpleNamespace(told=[])
    metadata: Any = SimpleNamespace(image=image, following=following)
    RegistrationTracker(7, metadata, broker.life)

    def follow(*changes: Message) -> bool:
        """Apply these changes, and return whether the broker registers."""
        for change in changes:
            image.apply(change)
        for told in following.told:
            told()
        while any(due_s <= broker.timers.now_s for due_s, _ in broker.timers.waiting):
            broker.timers.next()
        return isinstance(broker.channel.request, BrokerRegistrationRequest)

    level = FeatureLevelRecord(name=METADATA_VERSION, feature_level=DIRECTORIES_SINCE)
    older = FeatureLevelRecord(name=METADATA_VERSION, feature_level=DIRECTORIES_SINCE - 1)
    assert not follow(older, RegisterBrokerRecord(broker_id=7, broker_epoch=EPOCH))
    assert follow(level)
    broker.channel.answer(BrokerRegistrationResponse(broker_epoch=EPOCH))
    broker.timers.next()
    broker.answer()
    assert not follow(), "once for each registration"
    assert not follow(RegisterBrokerRecord(broker_id=7, broker_epoch=EPOCH, log_dirs=[b"d" * 16]))
