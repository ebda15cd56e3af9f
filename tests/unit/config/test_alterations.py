"""IncrementalAlterConfigs and AlterConfigs, as Kafka 4.3.1 answered them."""

from __future__ import annotations

from typing import Any

import pytest

from broker.config.alterations import (
    MAX_VALUE_CHARACTERS,
    Alteration,
    AlterConfigOp,
    alter_broker,
    alter_topic,
    changes_of,
    check_request,
    reasons_against,
    replace_broker,
    replace_topic,
)
from broker.config.assembly import assemble, settings_of
from broker.config.broker_config import BrokerConfig
from broker.config.topic_config import topic_definition
from protocol.errors import Error, KafkaError

SET, DELETE, APPEND, SUBTRACT = AlterConfigOp


def config() -> BrokerConfig:
    return assemble([settings_of({"log.cleanup.policy": "compact"})])


def on_topic(
    *alterations: tuple[str, int, str | None], stored: dict[str, str] | None = None
) -> dict[str, str | None]:
    return alter_topic(config(), stored or {}, [Alteration(*alteration) for alteration in alterations])


def on_broker(
    *alterations: tuple[str, int, str | None], stored: dict[str, str] | None = None, per_broker: bool = False
) -> dict[str, str | None]:
    listed = [Alteration(*alteration) for alteration in alterations]
    return alter_broker(config(), stored or {}, listed, per_broker=per_broker)


# --- requests -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alterations", "message"),
    [
        ([("a", SET, "1"), ("a", SET, "2")], "Error due to duplicate config keys"),
        ([("a", SET, None), ("b", APPEND, None)], "Null value not supported for : a, b"),
    ],
)
def test_a_nonsense_request_is_refused(alterations: list[tuple[str, int, str | None]], message: str) -> None:
    with pytest.raises(KafkaError) as raised:
        check_request([Alteration(*alteration) for alteration in alterations])
    assert (raised.value.error, raised.value.message) == (Error.INVALID_REQUEST, message)


def test_a_deletion_needs_no_value() -> None:
    check_request([Alteration("a", DELETE, None)])


# --- topics -------------------------------------------------------------------------------------------------


def test_setting_and_deleting_are_records() -> None:
    stored = {"retention.ms": "1", "flush.ms": "5"}
    changes = on_topic(("retention.ms", SET, "2"), ("flush.ms", DELETE, None), stored=stored)
    assert changes == {"retention.ms": "2", "flush.ms": None}


def test_a_setting_that_already_holds_makes_no_record() -> None:
    assert on_topic(("retention.ms", SET, "1"), stored={"retention.ms": "1"}) == {}
    assert on_topic(("nope", DELETE, None)) == {}


def test_a_list_is_appended_to_from_kafkas_default() -> None:
    # Kafka's own default counts, not the broker's, which is "compact" here.
    assert on_topic(("cleanup.policy", APPEND, "compact")) == {"cleanup.policy": "delete,compact"}


def test_appending_an_existing_entry_changes_nothing() -> None:
    assert on_topic(("cleanup.policy", APPEND, "compact"), stored={"cleanup.policy": "compact"}) == {}


def test_the_last_element_can_be_taken_away() -> None:
    assert on_topic(("cleanup.policy", SUBTRACT, "delete")) == {"cleanup.policy": ""}
    stored = {"cleanup.policy": "compact,delete"}
    assert on_topic(("cleanup.policy", SUBTRACT, "compact,x"), stored=stored) == {"cleanup.policy": "delete"}


@pytest.mark.parametrize(
    ("alteration", "message"),
    [
        (("retention.ms", APPEND, "2"), "Can't APPEND to key retention.ms because its type is not LIST."),
        (("nope", SUBTRACT, "2"), "Can't SUBTRACT to key nope because its type is not LIST."),
        (("nope", SET, "2"), "Unknown topic config name: nope"),
        (
            ("cleanup.policy", APPEND, "foo"),
            "Invalid value foo for configuration cleanup.policy: String must be one of: compact, delete",
        ),
    ],
)
def test_a_topics_bad_alteration_is_an_invalid_config(
    alteration: tuple[str, int, str | None], message: str
) -> None:
    with pytest.raises(KafkaError) as raised:
        on_topic(alteration)
    assert (raised.value.error, raised.value.message) == (Error.INVALID_CONFIG, message)


def test_an_operation_that_is_not_known_is_an_unknown_error_on_a_topic() -> None:
    with pytest.raises(KafkaError) as raised:
        on_topic(("retention.ms", 9, "1"))
    assert raised.value.error is Error.UNKNOWN_SERVER_ERROR


@pytest.mark.limit("broker.config.alterations.MAX_VALUE_CHARACTERS")
def test_a_value_cannot_grow_without_end() -> None:
    name = "follower.replication.throttled.replicas"
    with pytest.raises(KafkaError, match="exceeds the maximum value size of 32767 bytes"):
        on_topic((name, APPEND, "1:1,2:2"), stored={name: "3" * (MAX_VALUE_CHARACTERS - 4)})


THROTTLED = "follower.replication.throttled.replicas"


@pytest.mark.parametrize(
    ("name", "operation", "value", "named"),
    [
        ("log.cleanup.policy", SET, "delete, delete", "log.cleanup.policy"),
        ("log.cleanup.policy", SET, "compact,delete,compact", "log.cleanup.policy"),
        ("cordoned.log.dirs", SET, ",,", "cordoned.log.dirs"),
        ("metric.reporters", APPEND, "a, a", "metric.reporters"),
        ("listener.name.x.ssl.cipher.suites", SET, "a,a", "ssl.cipher.suites"),
    ],
)
def test_a_brokers_list_that_names_something_twice_is_refused(
    name: str, operation: AlterConfigOp, value: str, named: str
) -> None:
    """Kafka 4.4 does so, too. A topic's list or a file's may name something twice, and it counts once there."""
    with pytest.raises(KafkaError) as refused:
        on_broker((name, operation, value), per_broker=True)
    assert (refused.value.error, refused.value.message) == (
        Error.INVALID_REQUEST,
        f"Configuration '{named}' values must not be duplicated.",
    )
    throttled = "leader.replication.throttled.replicas"
    assert on_topic((throttled, SET, "1:1,1:1")) == {throttled: "1:1,1:1"}
    assert on_topic(("cleanup.policy", SET, "delete,delete")) == {"cleanup.policy": "delete,delete"}
    assert reasons_against(config(), {"log.cleanup.policy": "delete,delete"}, per_broker=False)


@pytest.mark.parametrize(
    ("operation", "value", "stored", "expected"),
    [
        (APPEND, "2:2,3:3,2:2", "1:1,1:1,2:2", "1:1,1:1,2:2,3:3"),
        (SUBTRACT, "1:1,4:4", "1:1,2:2,1:1", "2:2,1:1"),
        (SUBTRACT, "1:1,1:1", "1:1,2:2,1:1", "2:2"),
        (APPEND, "2:2,,,", "1:1", "1:1,2:2"),
        (APPEND, ",,", "1:1", "1:1"),
        (APPEND, "", "1:1", "1:1,"),
    ],
)
def test_an_entry_named_twice_counts_as_in_kafka(
    operation: AlterConfigOp, value: str, stored: str, expected: str
) -> None:
    changes = changes_of({THROTTLED: stored}, [Alteration(THROTTLED, operation, value)], topic_definition)
    assert changes == {THROTTLED: expected}


class CountedPart(str):
    """A text that counts how often one is compared with another."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        CountedPart.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


class CountedText(str):
    """A text that splits into `CountedPart`s."""

    __slots__ = ()

    def rstrip(self, chars: str | None = None, /) -> CountedText:
        return CountedText(super().rstrip(chars))

    def split(self, *args: Any, **kwargs: Any) -> list[Any]:
        return [CountedPart(part) for part in super().split(*args, **kwargs)]


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
def test_a_long_list_is_gone_through_once(operation: AlterConfigOp, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 3_000
    text = CountedText(",".join(map(str, range(count))))
    stored = CountedText(",".join(map(str, reversed(range(0, 2 * count, 2)))))
    monkeypatch.setattr(CountedPart, "compared", 0)
    changes_of({THROTTLED: stored}, [Alteration(THROTTLED, operation, text)], topic_definition)
    assert CountedPart.compared < 10 * count


def test_replacing_a_topics_settings_removes_those_not_named() -> None:
    stored = {"retention.ms": "1", "flush.ms": "5"}
    assert replace_topic(config(), stored, {"retention.ms": "1"}) == {"flush.ms": None}
    assert replace_topic(config(), stored, {}) == {"retention.ms": None, "flush.ms": None}
    with pytest.raises(KafkaError):
        replace_topic(config(), stored, {"retention.ms": "x"})


# --- brokers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alteration", "per_broker", "message"),
    [
        (("num.partitions", SET, "3"), True, "Cannot update these configs dynamically: [num.partitions]"),
        (
            ("log.retention.hours", SET, "1"),
            True,
            "Cannot update these configs dynamically: [log.retention.hours]",
        ),
        (
            ("log.retention.ms", SET, "abc"),
            True,
            "Invalid value abc for configuration log.retention.ms: Not a number of type LONG",
        ),
        (
            ("cordoned.log.dirs", SET, "*"),
            False,
            "Cannot update these configs at default cluster level, broker id must be specified: [cordoned.log.dirs]",
        ),
        (
            ("ssl.keystore.location", SET, "/x"),
            True,
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            "[ssl.keystore.location]",
        ),
        (
            ("num.io.threads", SET, "17"),
            True,
            "Dynamic thread count update validation failed for num.io.threads=17, "
            "value should not be greater than double the current value 8",
        ),
        (
            ("num.io.threads", SET, "3"),
            True,
            "Dynamic thread count update validation failed for num.io.threads=3, "
            "value should be at least half the current value 8",
        ),
        (
            ("log.retention.ms", SET, "0"),
            True,
            "log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
        ),
        (
            ("group.consumer.assignment.interval.ms", SET, "99999"),
            False,
            "group.consumer.assignment.interval.ms must be less than or equal to "
            "group.consumer.max.assignment.interval.ms",
        ),
        (("a", 9, "1"), True, "Unknown operations type 9"),
    ],
)
def test_a_brokers_bad_alteration_is_an_invalid_request(
    alteration: tuple[str, int, str | None], per_broker: bool, message: str
) -> None:
    with pytest.raises(KafkaError) as raised:
        on_broker(alteration, per_broker=per_broker)
    assert (raised.value.error, raised.value.message) == (Error.INVALID_REQUEST, message)


@pytest.mark.parametrize(
    ("alteration", "per_broker", "message"),
    [
        (
            ("log.retention.ms", APPEND, "5"),
            False,
            "Config value append is not allowed for config key: log.retention.ms",
        ),
        (("nope", SUBTRACT, "5"), False, "Unknown config name: nope"),
        (
            ("min.insync.replicas", SET, "1"),
            True,
            "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
        ),
        (
            ("min.insync.replicas", DELETE, None),
            False,
            "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
        ),
    ],
)
def test_some_bad_alterations_of_a_broker_are_an_invalid_config(
    alteration: tuple[str, int, str | None], per_broker: bool, message: str
) -> None:
    with pytest.raises(KafkaError) as raised:
        on_broker(alteration, per_broker=per_broker)
    assert (raised.value.error, raised.value.message) == (Error.INVALID_CONFIG, message)


@pytest.mark.parametrize(
    ("alteration", "per_broker", "expected"),
    [
        (("message.max.bytes", SET, "5"), False, "5"),
        (("num.io.threads", SET, "16"), True, "16"),
        (("foo.bar", SET, "2"), False, "2"),
        (("retention.ms", SET, "x"), False, "x"),
        (("nope", DELETE, None), False, None),
        (("log.cleanup.policy", APPEND, "compact"), False, "delete,compact"),
        (("leader.replication.throttled.rate", SET, "10"), False, "10"),
        (("listener.name.plaintext.max.connections", SET, "5"), False, "5"),
        (("min.insync.replicas", SET, "1"), False, "1"),
    ],
)
def test_settings_that_kafka_accepts_are_stored_typing_errors_included(
    alteration: tuple[str, int, str | None], per_broker: bool, expected: str | None
) -> None:
    assert on_broker(alteration, per_broker=per_broker) == {alteration[0]: expected}


def test_listeners_cannot_be_moved_while_the_broker_runs() -> None:
    with pytest.raises(KafkaError, match="this broker can't yet"):
        on_broker(("listeners", SET, "PLAINTEXT://:1"), per_broker=True)


def test_without_eligible_leader_replicas_min_insync_replicas_is_free() -> None:
    alterations = [Alteration("min.insync.replicas", SET, "1")]
    changes = alter_broker(config(), {}, alterations, per_broker=True, elr_enabled=False)
    assert changes == {"min.insync.replicas": "1"}


def test_replacing_a_brokers_settings_removes_those_not_named() -> None:
    stored = {"message.max.bytes": "5", "log.retention.ms": "6"}
    wanted = {"log.retention.ms": "7"}
    changes = replace_broker(config(), stored, wanted, per_broker=False)
    assert changes == {"log.retention.ms": "7", "message.max.bytes": None}
    with pytest.raises(KafkaError, match="Cannot update these configs dynamically"):
        replace_broker(config(), {}, {"num.partitions": "7"}, per_broker=True)
    with pytest.raises(KafkaError, match="cannot be removed while ELR is enabled"):
        replace_broker(config(), {"min.insync.replicas": "1"}, {}, per_broker=False)


def test_deciding_an_alteration_changes_nothing_yet() -> None:
    found = config()
    alter_broker(found, {}, [Alteration("message.max.bytes", SET, "5")], per_broker=False)
    assert found.get("message.max.bytes") == 1048588
