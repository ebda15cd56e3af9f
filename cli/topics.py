"""Topics: a list of them, and their partitions with leader, replicas and offsets.

barnabas topics                     all of them, one per line
barnabas topics orders              its partitions, and the settings that differ from the default
barnabas topics create orders       with the broker's defaults, or -p 6 -r 3 -c retention.ms=60000
barnabas topics delete orders
barnabas topics configs orders      its settings and where they come from; KEY=VALUE sets one
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from typing import Any

from cli.client.answers import told
from cli.client.cluster import KafkaCluster
from cli.client.offsets import EARLIEST, leaders_of, list_offsets, stable_and_ends
from cli.client.sizes import sizes_of_leaders
from cli.client.topics import Outcomes, create_topics, delete_topics
from cli.configs import differing, show_differing, show_or_set
from cli.confirming import confirm_at_terminal
from cli.errors import FAILED
from cli.options import add_connection, add_json, client_settings, key_values, name_in_kafka
from cli.output import as_json, say, show_json, show_table
from protocol.messages.metadata import MetadataResponseTopic
from protocol.messages.topics import CreatableTopic, CreatableTopicConfig

PARTITION_COLUMNS = (
    "topic",
    "partition",
    "leader",
    "replicas",
    "in sync",
    "start",
    "end",
    "last stable",
    "bytes",
)
TOPIC_COLUMNS = ("topic", "partitions", "replicas", "records", "open", "bytes")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verbs: show, create, delete, configs."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    show = verbs.add_parser(
        "show", aliases=["list"], help="(the default verb) show topics, or the partitions of named topics"
    )
    show.add_argument("names", nargs="*", type=name_in_kafka, metavar="NAME")
    show.add_argument("--internal", action="store_true", help="also internal topics")
    add_json(show)
    add_connection(show)
    create = verbs.add_parser("create", help="make topics")
    create.add_argument("names", nargs="+", type=name_in_kafka, metavar="NAME")
    create.add_argument(
        "-p", "--partitions", type=int, default=-1, metavar="N", help="how many (default: the broker's)"
    )
    create.add_argument(
        "-r",
        "--replicas",
        type=int,
        default=-1,
        metavar="N",
        help="the replication factor (default: the broker's)",
    )
    create.add_argument("-c", dest="settings_of_topic", metavar="KEY=VALUE", action="append", default=[])
    add_connection(create)
    delete = verbs.add_parser("delete", help="delete topics, with everything in them")
    delete.add_argument("names", nargs="+", type=name_in_kafka, metavar="NAME")
    delete.add_argument("--yes", action="store_true", help="don't ask at a terminal")
    add_connection(delete)
    configs = verbs.add_parser(
        "configs", help="show a topic's settings and where they come from, or set some"
    )
    configs.add_argument("name", type=name_in_kafka, metavar="NAME")
    configs.add_argument("changes", nargs="*", metavar="KEY=VALUE", help="KEY= removes the topic's own value")
    configs.add_argument("--all", action="store_true", help="also settings with Kafka's defaults")
    add_json(configs)
    add_connection(configs)


def run(options: argparse.Namespace) -> int:
    """See `cli.commands.Command`."""
    verb = {"show": _show, "list": _show, "create": _create, "delete": _delete, "configs": show_or_set}[
        options.verb
    ]
    with KafkaCluster(client_settings(options)) as cluster:
        return verb(cluster, options)


def _show(cluster: KafkaCluster, options: argparse.Namespace) -> int:
    topics = cluster.topics(options.names, internal=options.internal)
    rows = partition_rows(cluster, topics)
    if options.names or options.json:
        if options.json:
            documents = as_json(PARTITION_COLUMNS, rows)
            if options.names:
                settings = {topic.name: differing(cluster, topic.name or "") for topic in topics}
                documents = [{**each, "settings": settings[each["topic"]]} for each in documents]
            show_json(documents)
        else:
            show_table(PARTITION_COLUMNS, rows)
            for topic in topics:
                show_differing(cluster, topic.name or "")
        return 0
    by_topic = of_each_topic(rows)
    show_table(TOPIC_COLUMNS, [summed(topic, by_topic[topic.name or ""]) for topic in topics])
    return 0


def partition_rows(cluster: KafkaCluster, topics: list[MetadataResponseTopic]) -> list[list[Any]]:
    """Return a line for each partition, with the columns of PARTITION_COLUMNS. Raises CommandError."""
    leaders = leaders_of(topics)
    starts = list_offsets(cluster, dict.fromkeys(leaders, EARLIEST))
    stable, ends = stable_and_ends(cluster, leaders)
    sizes = sizes_of_leaders(cluster, leaders)
    rows = []
    for topic in topics:
        for each in sorted(topic.partitions, key=lambda each: each.partition_index):
            key = (topic.name or "", each.partition_index)
            leader = each.leader_id if each.leader_id >= 0 else None
            offsets = [starts.get(key), ends.get(key), stable.get(key), sizes.get(key)]
            rows.append([*key, leader, each.replica_nodes, each.isr_nodes, *offsets])
    return rows


def of_each_topic(rows: list[list[Any]]) -> dict[str, list[list[Any]]]:
    """Return the partitions' lines by topic."""
    found: dict[str, list[list[Any]]] = defaultdict(list)
    for row in rows:
        found[row[0]].append(row)
    return found


def summed(topic: MetadataResponseTopic, of_it: list[list[Any]]) -> list[Any]:
    """Return a topic's line, with the columns of TOPIC_COLUMNS, from its partitions' lines."""
    replicas = max((len(row[3] or ()) for row in of_it), default=0)
    known = all(None not in row[5:8] for row in of_it)
    records = sum(row[6] - row[5] for row in of_it) if known else None
    not_stable = sum(row[6] - row[7] for row in of_it) if known else None
    size = sum(row[8] for row in of_it) if all(row[8] is not None for row in of_it) else None
    return [topic.name, len(of_it), replicas, records, not_stable, size]


def _create(cluster: KafkaCluster, options: argparse.Namespace) -> int:
    settings = [
        CreatableTopicConfig(name=name, value=value)
        for name, value in key_values(options.settings_of_topic, "-c").items()
    ]
    topics = [
        CreatableTopic(
            name=name,
            num_partitions=options.partitions,
            replication_factor=options.replicas,
            configs=settings,
        )
        for name in options.names
    ]
    return _outcomes("created", create_topics(cluster, topics))


def _delete(cluster: KafkaCluster, options: argparse.Namespace) -> int:
    confirm_at_terminal(f"Delete {', '.join(options.names)}, with everything in them?", yes=options.yes)
    return _outcomes("deleted", delete_topics(cluster, options.names))


def _outcomes(verb: str, outcomes: Outcomes) -> int:
    """Print a line for each, and return the exit status: 0 if all went well."""
    for name, (error_code, message) in sorted(outcomes.items()):
        say(f"{name}: {told(error_code, message) if error_code else verb}")
    return FAILED if any(error_code for error_code, _ in outcomes.values()) else 0
