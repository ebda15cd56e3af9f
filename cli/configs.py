"""A topic's settings: the value of each, and where it comes from: the topic, the brokers or Kafka's default."""

from __future__ import annotations

import argparse
from typing import Final

from cli.client.answers import check, the_one
from cli.client.cluster import KafkaCluster
from cli.options import key_values
from cli.output import as_json, say, show_json, show_table
from protocol.messages.configs import (
    AlterConfigsResourceResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)

TOPIC: Final = 2
BROKER: Final = 4
SET, DELETE = 0, 1
OF_DEFAULT, OF_TOPIC = 5, 1
WHY: Final = {
    1: "set on the topic",
    2: "set on this broker while it runs",
    3: "set on all brokers while they run",
    4: "in the broker's file or start",
    5: "Kafka's default",
    6: "set on the broker's logger",
    7: "set on client metrics",
    8: "set on the group",
}
"""`ConfigEntry.ConfigSource`, in words."""
SETTINGS_COLUMNS: Final = ("setting", "value", "why", "else")


def show_or_set(cluster: KafkaCluster, options: argparse.Namespace) -> int:
    """`barnabas topics configs NAME [KEY=VALUE …]`."""
    if options.changes:
        return _set(cluster, options.name, key_values(options.changes, "configs"))
    found = described(cluster, options.name)
    kept = [each for each in found if options.all or each.config_source != OF_DEFAULT or options.json]
    rows = [_row(each) for each in kept]
    if options.json:
        show_json(as_json(SETTINGS_COLUMNS, rows))
    elif rows:
        show_table(SETTINGS_COLUMNS, rows)
    if not options.all and not options.json:
        say(f"{len(found) - len(kept)} more have Kafka's defaults (--all shows them)")
    return 0


def settings_rows(cluster: KafkaCluster, name: str, kind: int = TOPIC) -> list[list[str]]:
    """Return a line for each setting, with the columns of SETTINGS_COLUMNS. Raises CommandError."""
    return [_row(each) for each in described(cluster, name, kind)]


def _row(setting: DescribeConfigsResourceResult) -> list[str]:
    return [setting.name, value_of(setting), WHY.get(setting.config_source, "?"), _else(setting)]


def show_differing(cluster: KafkaCluster, topic: str) -> None:
    """Show the topic's own settings."""
    rows = [[topic, name, value] for name, value in differing(cluster, topic).items()]
    if rows:
        show_table(("topic", "setting", "value"), rows)


def differing(cluster: KafkaCluster, topic: str) -> dict[str, str]:
    """Return the topic's own settings, as they are shown."""
    own = (each for each in described(cluster, topic) if each.config_source == OF_TOPIC)
    return {each.name: value_of(each) for each in own}


def described(cluster: KafkaCluster, name: str, kind: int = TOPIC) -> list[DescribeConfigsResourceResult]:
    """Return all settings of the topic or broker. Raises CommandError if there is none of this name."""
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)],
        include_synonyms=True,
    )
    node = int(name) if kind == BROKER else None
    what = f"{'broker' if kind == BROKER else 'topic'} {name}"
    result = the_one(cluster.ask(request, DescribeConfigsResponse, node).results, what)
    check(result.error_code, result.error_message, what)
    return sorted(result.configs, key=lambda each: each.name)


def value_of(setting: DescribeConfigsResourceResult) -> str:
    """Return the value to show, without secrets."""
    return "(secret)" if setting.is_sensitive else setting.value or ""


def _else(setting: DescribeConfigsResourceResult) -> str:
    """Return what would apply without the topic's own value: the next value in line."""
    others = [each for each in setting.synonyms if each.source != setting.config_source]
    if not others:
        return ""
    value = "(secret)" if setting.is_sensitive else others[0].value or ""
    return f"{value} ({WHY.get(others[0].source, '?')}, {others[0].name})"


def _set(cluster: KafkaCluster, topic: str, changes: dict[str, str]) -> int:
    described(
        cluster, topic
    )  # a broker accepts settings for a name that no topic has, and keeps them for nothing
    altered = [
        IncrementalAlterableConfig(
            name=name, config_operation=SET if value else DELETE, value=value if value else None
        )
        for name, value in changes.items()
    ]
    request = IncrementalAlterConfigsRequest(
        resources=[IncrementalAlterConfigsResource(resource_type=TOPIC, resource_name=topic, configs=altered)]
    )
    result: AlterConfigsResourceResponse
    result = the_one(cluster.ask(request, IncrementalAlterConfigsResponse).responses, f"topic {topic}")
    check(result.error_code, result.error_message, f"topic {topic}")
    for name, value in changes.items():
        say(f"{topic}: {name}={value}" if value else f"{topic}: {name} no longer has a value of its own")
    return 0
