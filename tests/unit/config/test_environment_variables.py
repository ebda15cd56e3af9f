"""Settings from the environment, in the form that the apache/kafka image accepts."""

from __future__ import annotations

import pytest

from broker.config.definitions import UsageError
from broker.config.given_settings import NOT_SETTINGS, FirstTopic, Setting, read_environment, setting_name


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("KAFKA_NUM_PARTITIONS", "num.partitions"),
        ("KAFKA_A__B", "a_b"),
        ("KAFKA_A___B", "a-b"),
        ("KAFKA_A____B", "a-.b"),
        ("KAFKA_A_____B", "a-_b"),
        ("KAFKA_KAFKA_METRICS_REPORTERS", "kafka.metrics.reporters"),
        ("KAFKA_CFG_LOG_DIRS", "log.dirs"),
    ],
)
def test_underscores_become_dots_underscores_and_dashes(variable: str, name: str) -> None:
    assert setting_name(variable) == name


def test_a_setting_remembers_its_variable() -> None:
    settings = read_environment({"KAFKA_NUM_PARTITIONS": "3", "PATH": "/bin", "KAFKA": "x"}).settings
    assert settings == {"num.partitions": Setting("3", "KAFKA_NUM_PARTITIONS")}


def test_variables_for_the_jvm_and_its_scripts_are_no_settings() -> None:
    assert "KAFKA_HEAP_OPTS" in NOT_SETTINGS
    assert read_environment(dict.fromkeys(NOT_SETTINGS, "x")).settings == {}


def test_the_cluster_id_is_taken_for_new_folders() -> None:
    given = "5L6g3nShT-eMCtK--X86sw"
    assert read_environment({"CLUSTER_ID": given}).cluster_id == Setting(given, "CLUSTER_ID")
    assert read_environment({"CLUSTER_ID": ""}).cluster_id is None


def test_bitnamis_name_of_the_cluster_id_is_taken_too_and_the_images_own_wins() -> None:
    given, other = "5L6g3nShT-eMCtK--X86sw", "4L6g3nShT-eMCtK--X86sw"
    found = read_environment({"KAFKA_KRAFT_CLUSTER_ID": given})
    assert found.cluster_id == Setting(given, "KAFKA_KRAFT_CLUSTER_ID")
    assert found.settings == {}
    both = read_environment({"KAFKA_KRAFT_CLUSTER_ID": given, "CLUSTER_ID": other})
    assert both.cluster_id == Setting(other, "CLUSTER_ID")


def test_topics_are_asked_for_as_of_the_wurstmeister_image() -> None:
    orders, counts = FirstTopic("orders", 3, 1, None), FirstTopic("counts", 1, 2, "compact")
    found = read_environment({"KAFKA_CREATE_TOPICS": "orders:3:1, counts:1:2:compact,"})
    assert (found.topics, found.settings) == ([orders, counts], {})
    lines = {
        "KAFKA_CREATE_TOPICS": "\n orders:3:1\ncounts:1:2:compact\n",
        "KAFKA_CREATE_TOPICS_SEPARATOR": "\n",
    }
    assert read_environment(lines) == found
    assert read_environment({}).topics == []


@pytest.mark.parametrize(
    "text", ["orders", "orders:3", "orders:x:1", "orders:3:0", ":3:1", "orders:3:1:compact:x"]
)
def test_a_topic_in_another_form_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=f"KAFKA_CREATE_TOPICS: {text}: NAME:PARTITIONS:REPLICAS") as raised:
        read_environment({"KAFKA_CREATE_TOPICS": text})
    assert raised.value.exit_status == 2


def test_a_topic_named_twice_is_refused() -> None:
    for texts in ("orders:3:1,orders:3:1", "orders:3:1, counts:1:1 , orders:1:2:compact"):
        with pytest.raises(UsageError) as raised:
            read_environment({"KAFKA_CREATE_TOPICS": texts})
        assert str(raised.value) == "KAFKA_CREATE_TOPICS: orders is named twice"
        assert raised.value.exit_status == 2


def test_listeners_follow_from_the_advertised_ones_on_every_interface() -> None:
    advertised = "INSIDE://kafka:29092,OUTSIDE://localhost:9092,V6://[::1]:9094"
    settings = read_environment({"KAFKA_ADVERTISED_LISTENERS": advertised}).settings
    expected = "INSIDE://0.0.0.0:29092,OUTSIDE://0.0.0.0:9092,V6://0.0.0.0:9094"
    assert settings["listeners"] == Setting(expected, "KAFKA_ADVERTISED_LISTENERS")


def test_listeners_that_are_set_stay_as_they_are() -> None:
    environ = {"KAFKA_ADVERTISED_LISTENERS": "A://h:1", "KAFKA_LISTENERS": "A://:2"}
    assert read_environment(environ).settings["listeners"].value == "A://:2"


def test_listeners_in_bitnamis_form_are_not_overridden_by_advertised_ones() -> None:
    found = read_environment(
        {
            "KAFKA_CFG_LISTENERS": "PLAINTEXT://127.0.0.1:19111",
            "KAFKA_CFG_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:19222",
        }
    )
    assert found.settings["listeners"].value == "PLAINTEXT://127.0.0.1:19111"
