"""Groups of all kinds: classic, consumer, share, Streams, and simple ones, which only commit offsets.

barnabas groups                           all of them, one per line
barnabas groups billing                   its members, and how many records it has left in each partition
barnabas groups reset billing --topic orders --to earliest
                                          show how its offsets would change; --execute does it
barnabas groups delete billing

Lag here is a number of records. Markers, records of aborted transactions and compaction gaps don't count, although
each takes an offset. `lag` is what a reader of committed records gets now, `waiting` what it gets once the open
transactions before it have ended, `open` the records of these, `all` what a reader of everything gets, and
`offsets` the plain difference of offsets that other tools show.
"""

from __future__ import annotations

import argparse
from typing import Any

from cli.client.answers import told
from cli.client.cluster import KafkaCluster
from cli.client.counting import ALL, SOME
from cli.client.groups import (
    SHARE_KIND,
    DescribedGroup,
    delete_group,
    describe_group,
    find_group,
    list_groups,
)
from cli.confirming import confirm_at_terminal
from cli.errors import FAILED, CommandError
from cli.group_lag import LagOfPartition, lags_of, share_lags
from cli.options import add_connection, add_json, client_settings, name_in_kafka
from cli.output import as_json, say, show_json, show_pairs, show_table
from cli.pasting import in_shell, secrets_again, which_kafka
from cli.resetting import add_reset_arguments, reset

LIST_COLUMNS = ("group", "kind", "protocol", "state", "coordinator")
MEMBER_COLUMNS = ("member", "instance", "client", "host", "epoch", "partitions")
LAG_COLUMNS = (
    "topic",
    "partition",
    "committed",
    "last stable",
    "end",
    "lag",
    "waiting",
    "open",
    "all",
    "offsets",
    "member",
)
SHARE_COLUMNS = ("topic", "partition", "start", "end", "lag", "member")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verbs: show, reset, delete."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    show = verbs.add_parser(
        "show",
        aliases=["list"],
        help="(the default verb) show all groups, or the named ones with their lag",
    )
    show.add_argument("names", nargs="*", type=name_in_kafka, metavar="NAME")
    show.add_argument("--exact", action="store_true", help="count all records, however many there are")
    add_json(show)
    add_connection(show)
    add_reset_arguments(verbs.add_parser("reset", help="set the offsets of a group without members"))
    delete = verbs.add_parser("delete", help="delete groups without members, with their offsets")
    delete.add_argument("names", nargs="+", type=name_in_kafka, metavar="NAME")
    delete.add_argument("--yes", action="store_true", help="don't ask at a terminal")
    add_connection(delete)


def run(options: argparse.Namespace) -> int:
    """See `cli.commands.Command`."""
    verb = {"show": _show, "list": _show, "reset": reset, "delete": _delete}[options.verb]
    with KafkaCluster(client_settings(options)) as cluster:
        return verb(cluster, options)


def _show(cluster: KafkaCluster, options: argparse.Namespace) -> int:
    if not options.names:
        rows = [
            [each.name, each.kind, each.protocol, each.state, each.coordinator]
            for each in list_groups(cluster)
        ]
        if options.json:
            show_json(as_json(LIST_COLUMNS, rows))
        else:
            show_table(LIST_COLUMNS, rows)
        return 0
    documents = []
    for name in options.names:
        listed = find_group(cluster, name)
        if listed is None:
            raise CommandError(f"there is no group {name} (barnabas groups lists them)")
        group = describe_group(cluster, listed)
        effort = ALL if options.exact else SOME
        is_share = listed.kind == SHARE_KIND
        lags = share_lags(cluster, group) if is_share else lags_of(cluster, group, effort)
        if options.json:
            documents.append(document_of_group(group, lags))
        else:
            _write(group, lags, which_kafka(options))
            if any(each.open for each in lags) and (secrets := secrets_again(options)):
                say(secrets)
    if options.json:
        show_json(documents)
    return 0


def _write(group: DescribedGroup, lags: list[LagOfPartition], where: str) -> None:
    pairs: dict[str, object] = {
        "group": group.listed.name,
        "kind": group.listed.kind,
        "state": group.state,
        "assignor": group.assignor or None,
        "epoch": group.epoch,
        "assignment epoch": group.assignment_epoch,
        "topology epoch": group.topology_epoch,
        "coordinator": group.listed.coordinator,
        "members": len(group.members),
    }
    show_pairs({name: value for name, value in pairs.items() if value is not None})
    if group.members:
        print()
        rows = [
            [
                each.member_id,
                each.instance_id,
                each.client_id,
                each.host,
                each.epoch,
                each.tasks or [f"{topic}-{index}" for topic, index in each.partitions],
            ]
            for each in group.members
        ]
        show_table(MEMBER_COLUMNS, rows)
    if not lags:
        return
    print()
    if group.listed.kind == SHARE_KIND:
        shares = [[*each.partition, each.committed, each.end, each.lag, each.member] for each in lags]
        show_table(SHARE_COLUMNS, shares)
        return
    show_table(LAG_COLUMNS, [_lag_row(each) for each in lags])
    for each in lags:
        if each.note:
            say(f"{each.partition[0]}-{each.partition[1]}: {each.note}")
    held = sorted({each.partition[0] for each in lags if each.open})
    if held:
        topics = " ".join(map(in_shell, held))
        say(
            f"open transactions hold readers of committed records: barnabas transactions explain {topics}{where}"
        )


def _lag_row(each: LagOfPartition) -> list[Any]:
    counts: list[Any] = [each.lag, each.waiting, each.open, each.all_records]
    if not each.is_exact:
        counts = [f"≥ {count:,}" for count in counts]
    return [*each.partition, each.committed, each.stable, each.end, *counts, each.offsets, each.member]


def document_of_group(group: DescribedGroup, lags: list[LagOfPartition]) -> dict[str, Any]:
    """Return the group for programs."""
    return {
        "group": group.listed.name,
        "kind": group.listed.kind,
        "protocol": group.listed.protocol,
        "state": group.state,
        "assignor": group.assignor,
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "topology_epoch": group.topology_epoch,
        "subtopologies": group.subtopologies,
        "coordinator": group.listed.coordinator,
        "members": [
            {
                "member": each.member_id,
                "instance": each.instance_id,
                "client": each.client_id,
                "host": each.host,
                "epoch": each.epoch,
                "partitions": [{"topic": topic, "partition": index} for topic, index in each.partitions],
                "tasks": each.tasks,
            }
            for each in group.members
        ],
        "partitions": [
            {
                "topic": each.partition[0],
                "partition": each.partition[1],
                "committed": each.committed,
                "last_stable": each.stable,
                "end": each.end,
                "lag": each.lag,
                "waiting": each.waiting,
                "open": each.open,
                "all": each.all_records,
                "offsets": each.offsets,
                "exact": each.is_exact,
                "member": each.member,
                "unstable": each.is_unstable,
                "note": each.note,
            }
            for each in lags
        ],
    }


def _delete(cluster: KafkaCluster, options: argparse.Namespace) -> int:
    status = 0
    confirm_at_terminal(f"Delete {', '.join(options.names)}, with their offsets?", yes=options.yes)
    for name in options.names:
        error_code = delete_group(cluster, name)
        say(f"{name}: {told(error_code) if error_code else 'deleted'}")
        status = FAILED if error_code else status
    return status
