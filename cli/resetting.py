"""Setting the offsets of a group without members. It is a dry run unless told to do it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from cli.client.answers import check
from cli.client.cluster import KafkaCluster
from cli.client.groups import (
    SHARE_KIND,
    alter_share_offsets,
    commit_offsets,
    committed_offsets,
    find_group,
    share_offsets,
)
from cli.client.offsets import EARLIEST, LATEST_OFFSET, Partition, leaders_of, list_offsets, that_are_there
from cli.confirming import confirm_at_terminal
from cli.errors import FAILED, CommandError, CommandUsageError
from cli.options import add_connection, add_json, name_in_kafka
from cli.output import as_json, say, show_json, show_table
from cli.wording import number_of
from protocol.errors import Error

COLUMNS: Final = ("topic", "partition", "from", "to", "note")
WITHOUT_MEMBERS: Final = ("Empty", "Dead", "")
FORMS: Final = {"earliest": 1, "latest": 1, "offset": 2, "time": 2, "shift": 2}


def add_reset_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `barnabas groups reset`."""
    parser.add_argument("name", type=name_in_kafka, metavar="NAME")
    parser.add_argument(
        "--topic",
        type=name_in_kafka,
        action="append",
        default=[],
        metavar="TOPIC[:P,P…]",
        help="a topic, or some of its partitions; may be repeated",
    )
    parser.add_argument(
        "--all-topics", action="store_true", help="all topics for which the group has committed offsets"
    )
    parser.add_argument(
        "--to",
        nargs="+",
        required=True,
        metavar="WHERE",
        help="earliest | latest | offset N | time 2026-01-31T12:00:00+01:00 | shift N (back if N is negative)",
    )
    parser.add_argument("--execute", action="store_true", help="do it, instead of only showing it")
    parser.add_argument("--new", action="store_true", help="create the group if it doesn't exist")
    parser.add_argument("--yes", action="store_true", help="don't ask at a terminal")
    add_json(parser)
    add_connection(parser)


@dataclass(frozen=True)
class Reset:
    """Where to set the offsets of a group, with a note on each."""

    group: str
    is_there: bool
    is_share: bool
    before: dict[Partition, int]
    after: dict[Partition, tuple[int, str]]

    def rows(self, failures: Mapping[Partition, str | None]) -> list[list[Any]]:
        """Return a line for each partition, with the columns of COLUMNS."""
        return [
            [*partition, self.before.get(partition), offset, failures.get(partition) or note or None]
            for partition, (offset, note) in sorted(self.after.items())
        ]


def plan_of_reset(
    cluster: KafkaCluster, name: str, topics: Sequence[str], to: Sequence[str], *, all_topics: bool
) -> Reset:
    """Return what a reset would do. `topics` are TOPIC or TOPIC:0,1, `to` is one of FORMS. Raises CommandError."""
    kind, value = _where(to)
    group = find_group(cluster, name)
    if group is not None and group.state not in WITHOUT_MEMBERS:
        raise CommandError(
            f"group {name} is {group.state}: only a group without members accepts new offsets."
            " Stop its consumers first"
        )
    is_share = group is not None and group.kind == SHARE_KIND
    if is_share:
        before = {key: start for key, (start, _) in share_offsets(cluster, name).items() if start >= 0}
    else:
        before = committed_offsets(cluster, name)
    partitions = _partitions(cluster, name, topics, before, all_topics=all_topics)
    after = _targets(cluster, partitions, before, kind, value)
    return Reset(name, group is not None, is_share, before, after)


def execute_reset(cluster: KafkaCluster, plan: Reset) -> dict[Partition, str | None]:
    """Do it and return each partition's error, or None. Raises CommandError."""
    offsets = {partition: offset for partition, (offset, _) in plan.after.items()}
    change = alter_share_offsets if plan.is_share else commit_offsets
    return change(cluster, plan.group, offsets)


def question_of_reset(plan: Reset) -> str:
    """The question to answer with yes."""
    return f"Set the offsets of group {plan.group} in {number_of(len(plan.after), 'partition')}?"


def reset(cluster: KafkaCluster, options: argparse.Namespace) -> int:
    """Run `barnabas groups reset`."""
    plan = plan_of_reset(cluster, options.name, options.topic, options.to, all_topics=options.all_topics)
    failures: dict[Partition, str | None] = {}
    if not plan.is_there and not options.new:
        if options.execute:
            raise CommandError(
                f"there is no group {options.name} (barnabas groups lists them): --new creates it"
            )
        say(f"there is no group {options.name}: --execute needs --new")
    if options.execute:
        confirm_at_terminal(question_of_reset(plan), yes=options.yes)
        failures = execute_reset(cluster, plan)
    rows = plan.rows(failures)
    if options.json:
        show_json(as_json(COLUMNS, rows))
    else:
        show_table(COLUMNS, rows)
    failed = any(failures.values())
    if failed:
        say("not all were set")
    elif options.execute:
        say(f"{options.name}: set")
    else:
        say("nothing was changed: --execute does it")
    return FAILED if failed else 0


def _where(words: Sequence[str]) -> tuple[str, int]:
    """Return earliest, latest, offset, time or shift, with its number; a time in ms."""
    kind = words[0] if words else ""
    if FORMS.get(kind) != len(words):
        raise CommandUsageError(
            f"--to {' '.join(words)}: earliest, latest, offset N, time T or shift N is the form"
        )
    if len(words) == 1:
        return kind, 0
    try:
        if kind == "time":
            return kind, round(datetime.fromisoformat(words[1]).astimezone().timestamp() * 1000)
        return kind, int(words[1])
    except (ValueError, OverflowError):
        form = "a time such as 2026-01-31T12:00:00+01:00" if kind == "time" else "a number"
        raise CommandUsageError(f"--to {' '.join(words)}: {form} is needed") from None


def _partitions(
    cluster: KafkaCluster,
    group: str,
    topics: Sequence[str],
    before: dict[Partition, int],
    *,
    all_topics: bool,
) -> list[Partition]:
    if all_topics == bool(topics):
        raise CommandUsageError("either --topic or --all-topics is needed")
    if all_topics:
        if not before:
            raise CommandError(f"group {group} has no offsets: name the topics by --topic")
        there = sorted(that_are_there(cluster, before))
        for topic in sorted({topic for topic, _ in before} - {topic for topic, _ in there}):
            say(f"{topic}: the topic is gone; its committed offsets stay")
        if not there:
            raise CommandError(f"group {group} has offsets only of topics that are gone")
        return there
    found: list[Partition] = []
    for text in topics:
        name, _, indexes = text.partition(":")
        known = sorted(leaders_of(cluster.topics([name])))
        if indexes and not all(index.isdigit() for index in indexes.split(",")):
            raise CommandUsageError(f"--topic {text}: TOPIC or TOPIC:0,1 is the form")
        wanted = [(name, int(index)) for index in indexes.split(",")] if indexes else known
        for partition in wanted:
            if partition not in known:
                check(Error.UNKNOWN_TOPIC_OR_PARTITION, None, f"{name}-{partition[1]}")
        found += wanted
    return found


def _targets(
    cluster: KafkaCluster, partitions: list[Partition], before: dict[Partition, int], kind: str, value: int
) -> dict[Partition, tuple[int, str]]:
    """Return where to set each partition, never outside of its log, with a note."""
    starts = list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
    ends = list_offsets(cluster, dict.fromkeys(partitions, LATEST_OFFSET))
    at_time = list_offsets(cluster, dict.fromkeys(partitions, value)) if kind == "time" else {}
    targets = {}
    for partition in partitions:
        name = f"{partition[0]}-{partition[1]}"
        if partition not in starts or partition not in ends:
            raise CommandError(f"{name} has no leader now")
        start, end, note = starts[partition], ends[partition], ""
        match kind:
            case "earliest":
                wanted = start
            case "latest":
                wanted = end
            case "offset":
                wanted = value
            case "shift":
                if partition not in before:
                    raise CommandError(f"{name} can't be shifted: the group has no offset there")
                wanted = before[partition] + value
            case _:
                wanted = at_time.get(partition, -1)
                if wanted < 0:
                    wanted, note = end, "no record is that late"
        inside = min(max(wanted, start), end)
        if inside != wanted:
            note = f"{wanted} is outside of the log"
        targets[partition] = (inside, note)
    return targets
