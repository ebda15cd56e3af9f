"""Kafka's components check an altered configuration. The expectations are what Kafka 4.3.1 answered."""

from __future__ import annotations

import pytest

from broker.config.alterations import Alteration, AlterConfigOp, alter_broker, set_dynamic
from broker.config.assembly import assemble, settings_of
from broker.config.broker_config import BrokerConfig
from protocol.errors import Error, KafkaError

SET, DELETE, APPEND, SUBTRACT = AlterConfigOp

JMX = "org.apache.kafka.common.metrics.JmxReporter"
DEFAULT_BUILDER = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"

Change = tuple[str, int, str | None]


def config(static: dict[str, str] | None = None, **stored: str) -> BrokerConfig:
    """Assemble a configuration. `stored` are dynamic settings of this broker, with underscores for dots."""
    found = assemble([settings_of(static or {})])
    set_dynamic(found, broker=dotted(stored))
    return found


def dotted(settings: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): text for name, text in settings.items()}


def alter(
    found: BrokerConfig, *changes: Change, stored: dict[str, str] | None = None
) -> dict[str, str | None]:
    alterations = [Alteration(*change) for change in changes]
    return alter_broker(
        found, dict(found.dynamic_broker) if stored is None else stored, alterations, per_broker=True
    )


def refusal(found: BrokerConfig, *changes: Change) -> str:
    with pytest.raises(KafkaError) as raised:
        alter(found, *changes)
    assert raised.value.error is Error.INVALID_REQUEST
    assert raised.value.message is not None
    return raised.value.message


# --- connections --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["", "listener.name.plaintext."])
@pytest.mark.parametrize("name", ["max.connections", "max.connection.creation.rate"])
def test_no_limit_can_lock_everybody_out_of_a_listener(prefix: str, name: str) -> None:
    assert refusal(config(), (f"{prefix}{name}", SET, "0")) == f"Invalid {name} 0"


def test_connections_of_a_missing_listener_may_be_limited_to_none() -> None:
    assert alter(config(), ("listener.name.nobody.max.connections", SET, "0"))


def test_a_listener_with_connections_of_its_own_does_not_mind_those_of_all() -> None:
    assert alter(
        config(), ("max.connections", SET, "0"), ("listener.name.plaintext.max.connections", SET, "5")
    )


def test_no_connections_stored_once_are_not_put_into_force_and_stand_in_nobodys_way() -> None:
    found = assemble([settings_of({})])

    complaints = set_dynamic(
        found,
        broker={"max.connections": "0", "log.cleaner.threads": "0"},
        cluster={"max.connection.creation.rate": "0"},
    )

    assert found.get("max.connections") == 2**31 - 1
    assert len(complaints) == 3
    assert alter(found, ("message.max.bytes", SET, "5"), stored={"max.connections": "0"}) == {
        "message.max.bytes": "5"
    }


# --- threads ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "now"),
    [
        ("background.threads", 10),
        ("log.cleaner.threads", 1),
        ("num.io.threads", 8),
        ("num.network.threads", 3),
        ("listener.name.plaintext.num.network.threads", 3),
        ("num.recovery.threads.per.data.dir", 2),
        ("num.replica.fetchers", 1),
        ("remote.log.manager.copier.thread.pool.size", 10),
        ("remote.log.manager.expiration.thread.pool.size", 10),
        ("remote.log.manager.follower.thread.pool.size", 2),
        ("remote.log.reader.threads", 10),
    ],
)
def test_threads_may_be_doubled_and_halved_at_once_and_no_more(name: str, now: int) -> None:
    assert alter(config(), (name, SET, str(now * 2)))
    refusal(config(), (name, SET, str(now * 2 + 1)))
    if now > 1:
        assert alter(config(), (name, SET, str(now // 2)))
    if now > 3:
        refusal(config(), (name, SET, str(now // 2 - 1)))


def test_threads_are_not_taken_back_in_one_step_by_a_deletion() -> None:
    found = config(num_io_threads="32")
    assert "at least half the current value 32" in refusal(found, ("num.io.threads", DELETE, None))


def test_there_is_a_log_cleaner() -> None:
    assert refusal(config(), ("log.cleaner.threads", SET, "0")) == "log.cleaner.threads must be at least 1"


def test_the_followers_old_setting_of_threads_counts_if_given_alone() -> None:
    found = config({"remote.log.manager.thread.pool.size": "10"})
    refusal(found, ("remote.fetch.max.wait.ms", SET, "5"))
    assert alter(found, ("remote.log.manager.follower.thread.pool.size", SET, "20"))


# --- retention ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        [("log.local.retention.ms", SET, "-1")],
        [("log.local.retention.ms", SET, "604800001")],
        [("log.local.retention.ms", SET, "6"), ("log.retention.ms", SET, "5")],
        [("log.local.retention.bytes", SET, "-1"), ("log.retention.bytes", SET, "5")],
        [("log.local.retention.bytes", SET, "6"), ("log.retention.bytes", SET, "5")],
        [("log.remote.copy.lag.ms", SET, "604800001")],
        [("log.remote.copy.lag.ms", SET, "6"), ("log.local.retention.ms", SET, "5")],
        [("log.remote.copy.lag.bytes", SET, "6"), ("log.retention.bytes", SET, "5")],
    ],
)
def test_a_nodes_part_cannot_exceed_the_whole(changes: list[Change]) -> None:
    assert changes[0][0] in refusal(config(), *changes)


@pytest.mark.parametrize(
    "changes",
    [
        [("log.local.retention.ms", SET, "604800000")],
        [("log.local.retention.ms", SET, "-2")],
        [("log.remote.copy.lag.ms", SET, "604800000")],
        [("log.remote.copy.lag.ms", SET, "-1")],
        [("log.remote.copy.lag.bytes", SET, "6")],
        [("log.remote.copy.lag.bytes", SET, "5"), ("log.retention.bytes", SET, "5")],
        [("log.local.retention.ms", SET, "-1"), ("log.retention.ms", SET, "-2")],
        [("log.local.retention.bytes", SET, "-1")],
        [("log.local.retention.bytes", SET, "5")],
    ],
)
def test_as_much_may_be_kept_here_as_in_all(changes: list[Change]) -> None:
    assert alter(config(), *changes)


def test_retention_is_not_brought_below_the_local_one() -> None:
    found = config({"log.retention.minutes": "1"}, log_local_retention_ms="5000")
    refusal(found, ("log.retention.ms", SET, "4999"))
    refusal(found, ("log.local.retention.ms", SET, "60001"))


# --- classes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["principal.builder.class", "ssl.engine.factory.class"])
@pytest.mark.parametrize("text", ["", "com.example.Mine"])
def test_a_class_that_is_not_there_is_refused(name: str, text: str) -> None:
    assert f"Class {text} could not be found." in refusal(config(), (name, SET, text))
    refusal(config(), (f"listener.name.nobody.{name}", SET, text))


def test_a_class_of_kafkas_own_is_taken() -> None:
    assert alter(config(), ("principal.builder.class", SET, f" {DEFAULT_BUILDER} "))


@pytest.mark.parametrize("text", ["x", f"{JMX},x", DEFAULT_BUILDER])
def test_reporters_of_metrics_have_to_be_there(text: str) -> None:
    assert "reporter" in refusal(config(), ("metric.reporters", SET, text))


@pytest.mark.parametrize("text", ["", JMX, f" {JMX} , org.apache.kafka.tools.PushHttpMetricsReporter"])
def test_kafkas_own_reporters_of_metrics_are_accepted(text: str) -> None:
    assert alter(config(), ("metric.reporters", SET, text))


def test_one_can_go_back_to_the_reporters_that_the_broker_was_started_with() -> None:
    found = config({"metric.reporters": "com.example.Mine"}, metric_reporters=JMX)
    assert alter(found, ("metric.reporters", DELETE, None))


# --- settings of listeners ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "text"), [("num.partitions", "x"), ("plain.sasl.login.class", "x")])
def test_a_listeners_setting_must_be_readable_only_if_the_listener_exists(name: str, text: str) -> None:
    refusal(config(), (f"listener.name.plaintext.{name}", SET, text))
    assert alter(config(), (f"listener.name.nobody.{name}", SET, text))


def test_a_fixed_setting_of_a_listener_is_not_altered_together_with_its_connections() -> None:
    fixed = ("listener.name.plaintext.num.partitions", SET, "5")
    assert alter(config(), fixed)
    assert "existing listener" in refusal(config(), fixed, ("max.connections", SET, "5"))


# --- lists --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("appended", "comes_to"),
    [
        (",", "delete"),
        ("compact,,", "delete,compact"),
        ("delete", "delete"),
    ],
)
def test_commas_at_the_end_append_nothing(appended: str, comes_to: str) -> None:
    assert alter(config(), ("log.cleanup.policy", APPEND, appended)) == {"log.cleanup.policy": comes_to}


@pytest.mark.parametrize("appended", ["", ",compact"])
def test_an_empty_element_before_the_end_counts(appended: str) -> None:
    assert "must not be empty" in refusal(config(), ("log.cleanup.policy", APPEND, appended))
