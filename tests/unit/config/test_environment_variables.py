"""Settings from the environment, as the apache/kafka image takes them."""

from __future__ import annotations

import pytest

from broker.config.environment_variables import NOT_SETTINGS, read_environment, setting_name
from broker.config.settings import Setting


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


def test_what_is_meant_for_the_jvm_and_its_scripts_is_no_setting() -> None:
    assert "KAFKA_HEAP_OPTS" in NOT_SETTINGS
    assert read_environment(dict.fromkeys(NOT_SETTINGS, "x")).settings == {}


def test_the_cluster_id_is_taken_for_new_folders() -> None:
    given = "5L6g3nShT-eMCtK--X86sw"
    assert read_environment({"CLUSTER_ID": given}).cluster_id == Setting(given, "CLUSTER_ID")
    assert read_environment({"CLUSTER_ID": ""}).cluster_id is None


def test_listeners_follow_from_what_is_advertised_on_every_interface() -> None:
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
