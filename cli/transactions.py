"""Transactions: a list of them, and why readers of committed records wait.

barnabas transactions                     all transactional ids, over all brokers
barnabas transactions show billing-1      one of them
barnabas transactions explain             which partitions' readers wait, for whom, since when, until when
barnabas transactions explain orders      the same for one topic
barnabas transactions abort --id billing-1
                                          end its open transaction; its application is fenced
barnabas transactions abort --topic orders --partition 0 --start-offset 17
                                          end one that hangs: no coordinator will ever do it
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from cli.aborting import (
    abort_hanging,
    fence_transaction,
    hanging_to_abort,
    known_transaction,
    question_of_aborting,
    question_of_fencing,
    transaction_to_fence,
)
from cli.client.cluster import KafkaCluster
from cli.client.counting import ALL, SOME
from cli.client.transactions import NEVER_MS, CoordinatedTransaction, list_transactions
from cli.confirming import confirm
from cli.errors import CommandUsageError
from cli.explaining import explain
from cli.explanation_words import as_document, told_in_words
from cli.options import add_connection, add_json, client_settings, name_in_kafka
from cli.output import say, show_json, show_pairs, show_table
from cli.pasting import secrets_again, which_kafka
from cli.wording import moment, span

COLUMNS = (
    "transactional id",
    "state",
    "producer id",
    "epoch",
    "coordinator",
    "since",
    "timeout",
    "partitions",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verbs: list, show, explain, abort."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    listing = verbs.add_parser("list", help="(the default verb) all transactional ids of all brokers")
    listing.add_argument(
        "--state",
        action="append",
        default=[],
        help="only those in this state, such as Ongoing; may be repeated",
    )
    add_json(listing)
    add_connection(listing)
    show = verbs.add_parser("show", help="one transactional id")
    show.add_argument("id", type=name_in_kafka, metavar="ID")
    add_json(show)
    add_connection(show)
    explaining = verbs.add_parser(
        "explain", help="show which partitions' readers wait, for whom, since when, and how to end it"
    )
    explaining.add_argument("topics", nargs="*", type=name_in_kafka, metavar="TOPIC", help="(default: all)")
    explaining.add_argument("--internal", action="store_true", help="also internal topics")
    explaining.add_argument("--exact", action="store_true", help="count all records, however many there are")
    add_json(explaining)
    add_connection(explaining)
    abort = verbs.add_parser("abort", help="end a transaction by its id, or one that hangs")
    abort.add_argument(
        "--id", type=name_in_kafka, metavar="ID", help="the transactional id; its application is fenced"
    )
    abort.add_argument(
        "--topic", type=name_in_kafka, help="the topic where one hangs, with --partition and --start-offset"
    )
    abort.add_argument("--partition", type=int, metavar="N")
    abort.add_argument("--start-offset", type=int, metavar="OFFSET")
    abort.add_argument(
        "--force",
        action="store_true",
        help="also if its coordinator knows it, or may know it for another user: its other partitions stay as they are",
    )
    abort.add_argument("--yes", action="store_true", help="don't ask")
    add_connection(abort)


def run(options: argparse.Namespace) -> int:
    """See `cli.commands.Command`."""
    verb = {"list": _list, "show": _show, "explain": _explain, "abort": _abort}[options.verb]
    with KafkaCluster(client_settings(options)) as cluster:
        return verb(cluster, options)


def _list(cluster: KafkaCluster, options: argparse.Namespace) -> int:
    found = list_transactions(cluster, states=options.state)
    if options.json:
        show_json([document_of(each) for each in found])
        return 0
    show_table(COLUMNS, [_row(each) for each in found])
    return 0


def _show(cluster: KafkaCluster, options: argparse.Namespace) -> int:
    found = known_transaction(cluster, options.id)
    if options.json:
        show_json(document_of(found))
        return 0
    pairs: dict[str, object] = dict(zip(COLUMNS, _row(found), strict=True))
    pairs["partitions"] = [f"{topic}-{index}" for topic, index in sorted(found.partitions)]
    if found.ends_ms is not None:
        pairs["aborted at"] = f"{moment(found.ends_ms)}, unless it ends before"
    show_pairs(pairs)
    return 0


def _row(each: CoordinatedTransaction) -> list[Any]:
    is_running = each.started_ms is not None and (each.is_open or each.is_ending)
    since = f"{moment(each.started_ms or 0)} ({span(_now_ms() - (each.started_ms or 0))})"
    return [
        each.transactional_id,
        each.state,
        str(each.producer_id),
        each.producer_epoch,
        each.coordinator,
        since if is_running else None,
        "never" if each.timeout_ms >= NEVER_MS else span(each.timeout_ms),
        len(each.partitions),
    ]


def document_of(each: CoordinatedTransaction) -> dict[str, Any]:
    """Return the transaction for programs."""
    return {
        "transactional_id": each.transactional_id,
        "state": each.state,
        "producer_id": each.producer_id,
        "producer_epoch": each.producer_epoch,
        "coordinator": each.coordinator,
        "started_ms": each.started_ms,
        "timeout_ms": each.timeout_ms,
        "ends_ms": each.ends_ms,
        "partitions": [
            {"topic": topic, "partition": partition} for topic, partition in sorted(each.partitions)
        ],
    }


def _explain(cluster: KafkaCluster, options: argparse.Namespace) -> int:
    topics = cluster.topics(options.topics, internal=options.internal)
    found = explain(cluster, topics, ALL if options.exact else SOME, with_tails=bool(options.topics))
    where = which_kafka(options)
    if options.json:
        show_json(as_document(found, where, _now_ms()))
    else:
        print(told_in_words(found, where, _now_ms()))
        secrets = secrets_again(options)
        if found.waiting and secrets:
            say(secrets)
    return 0


def _abort(cluster: KafkaCluster, options: argparse.Namespace) -> int:
    where = (options.topic, options.partition, options.start_offset)
    if options.id is not None and where == (None, None, None):
        return _fence(cluster, options)
    if options.id is None and None not in where:
        return _abort_hanging(cluster, options)
    raise CommandUsageError("give either --id ID, or --topic, --partition and --start-offset")


def _fence(cluster: KafkaCluster, options: argparse.Namespace) -> int:
    found = transaction_to_fence(cluster, options.id)
    confirm(question_of_fencing(found), yes=options.yes)
    say(fence_transaction(cluster, found))
    return 0


def _abort_hanging(cluster: KafkaCluster, options: argparse.Namespace) -> int:
    partition = (options.topic, options.partition)
    where = which_kafka(options)
    one = hanging_to_abort(cluster, partition, options.start_offset, _now_ms(), where, force=options.force)
    confirm(question_of_aborting(one), yes=options.yes)
    say(abort_hanging(cluster, one))
    return 0


def _now_ms() -> int:
    return round(time.time() * 1000)
