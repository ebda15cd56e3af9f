"""Typed values, and what alterations change."""

from __future__ import annotations

import pytest

from broker.config.alterations import set_dynamic
from broker.config.assembly import assemble, settings_of
from broker.config.broker_config import BrokerConfig


def config(values: dict[str, str] | None = None) -> BrokerConfig:
    return assemble([settings_of(values or {}, "file:1")])


def test_values_have_their_types() -> None:
    found = config({"log.dirs": "/a, /b", "broker.rack": "r1"})
    assert found.get_int("num.partitions") == 1
    assert found.get_optional_int("log.retention.ms") is None
    assert found.get_boolean("auto.create.topics.enable") is True
    assert found.get("log.cleaner.min.cleanable.ratio") == 0.5
    assert found.get_string("broker.rack") == "r1"
    assert found.get_list("log.dirs") == ("/a", "/b")
    assert found.get_list("advertised.listeners") == ()


def test_log_dirs_overrides_log_dir() -> None:
    assert config({"log.dir": "/one"}).log_dirs == ("/one",)
    assert config({"log.dir": "/one", "log.dirs": "/two,/three"}).log_dirs == ("/two", "/three")


def test_limits_per_host_are_parted_at_the_last_colon() -> None:
    found = config({"max.connections.per.ip.overrides": "127.0.0.1:5, ::1:6,host:7"})
    assert found.max_connections_per_host == {"127.0.0.1": 5, "::1": 6, "host": 7}


def test_a_value_knows_where_it_stands() -> None:
    found = config({"num.partitions": "3"})
    assert found.origin("num.partitions") == "file:1"
    assert found.origin("message.max.bytes") == "the default"
    set_dynamic(found, cluster={"message.max.bytes": "5"})
    assert found.origin("message.max.bytes") == "altered"


def test_a_name_that_is_no_setting_is_a_mistake_of_ours() -> None:
    with pytest.raises(AssertionError, match=r"num\.partitons is no setting"):
        config().get("num.partitons")


def test_this_brokers_alterations_go_before_the_clusters_and_those_before_the_file() -> None:
    found = config({"message.max.bytes": "1"})
    set_dynamic(found, cluster={"message.max.bytes": "2"})
    assert found.get("message.max.bytes") == 2
    set_dynamic(found, broker={"message.max.bytes": "3"})
    assert found.get("message.max.bytes") == 3
    set_dynamic(found, broker={})
    assert found.get("message.max.bytes") == 2
    set_dynamic(found, cluster={})
    assert found.get("message.max.bytes") == 1


def test_each_alteration_is_counted() -> None:
    found = config()
    before = found.generation
    set_dynamic(found, cluster={})
    set_dynamic(found, broker={})
    assert found.generation == before + 2


def test_an_altered_setting_hides_the_same_setting_in_other_units() -> None:
    found = config({"log.roll.ms": "5", "log.retention.minutes": "3"})
    set_dynamic(found, cluster={"log.retention.ms": "7"}, broker={"log.roll.ms": "9"})
    assert found.get("log.retention.ms") == 7
    assert found.get("log.retention.minutes") is None
    assert found.get("log.roll.ms") == 9


def test_wrong_settings_in_the_log_are_skipped_and_reported() -> None:
    found = config()
    complaints = set_dynamic(
        found,
        cluster={
            "num.partitions": "5",
            "listeners": "PLAINTEXT://:1",
            "log.retention.ms": "x",
            "ssl.keystore.location": "/x",
            "message.max.bytes": "77",
            "whatever": "kept",
        },
    )
    assert dict(found.dynamic_cluster) == {"message.max.bytes": "77", "whatever": "kept"}
    assert [complaint.partition(":")[0] for complaint in complaints] == [
        "num.partitions",
        "listeners",
        "log.retention.ms",
        "ssl.keystore.location",
    ]
    assert found.get("num.partitions") == 1


@pytest.mark.parametrize(("stored", "in_force"), [("99999", 15000), ("1", 1)])
def test_an_altered_interval_stays_within_its_static_bounds(stored: str, in_force: int) -> None:
    found = config()
    set_dynamic(found, cluster={"group.consumer.assignment.interval.ms": stored})
    assert found.get("group.consumer.assignment.interval.ms") == in_force


def test_trying_an_alteration_leaves_the_configuration_as_it_is() -> None:
    found = config()
    assert found.altered(cluster={"message.max.bytes": "5"}).get("message.max.bytes") == 5
    assert found.get("message.max.bytes") == 1048588
