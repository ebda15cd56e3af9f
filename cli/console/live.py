"""A running Kafka for the console: the pages' one-time questions, and the actions on it."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from cli.aborting import (
    abort_hanging,
    fence_transaction,
    hanging_to_abort,
    question_of_aborting,
    question_of_fencing,
    transaction_to_fence,
)
from cli.client.cluster import KafkaCluster
from cli.client.counting import Effort
from cli.client.deleting import delete_records
from cli.client.fetching import fetch_or_error
from cli.client.groups import SHARE_KIND, describe_group, find_group, list_groups
from cli.client.offsets import (
    EARLIEST,
    LATEST_OFFSET,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Partition,
    list_offsets,
    raise_for,
)
from cli.client.rights import acls_of, users_of
from cli.client.transactions import list_transactions
from cli.configs import BROKER, SETTINGS_COLUMNS, settings_rows
from cli.console.pieces import Piece
from cli.console.questions import number_of, partition_of, text_of, texts_of
from cli.console.telemetry import ClientTelemetry
from cli.errors import CommandError
from cli.explaining import explain
from cli.explanation_words import as_document, told_in_words
from cli.group_lag import lags_of, share_lags
from cli.groups import LIST_COLUMNS, document_of_group
from cli.output import as_json
from cli.places import Place
from cli.resetting import COLUMNS as RESET_COLUMNS
from cli.resetting import execute_reset, plan_of_reset, question_of_reset
from cli.topics import PARTITION_COLUMNS, partition_rows
from cli.transactions import document_of
from protocol.errors import Error
from protocol.messages.metadata import MetadataResponseBroker

PATIENCE_S: Final = 3.0
"""How long to retry passing errors: somebody is looking at the page."""
CLUSTERS: Final = 4
"""The most questions of pages that run at once."""
WAIT_S: Final = 10.0
EFFORT: Final = Effort(16 * 1024 * 1024, 2.0)
LITTLE: Final = Effort(1024 * 1024, 0.3)
"""The effort of counts that are repeated again and again."""


class LiveKafka:
    """Every method raises CommandError."""

    is_live = True

    def __init__(
        self, settings: Mapping[str, str], where: str, telemetry: ClientTelemetry | None = None
    ) -> None:
        self.settings = settings
        self._telemetry = telemetry or ClientTelemetry()
        self.where = where
        """The options of a command that say which Kafka is meant."""
        self.known_brokers: dict[int, MetadataResponseBroker] = {}
        """The brokers as their watcher knows them: the bootstrap broker may be gone."""
        self._free: queue.LifoQueue[KafkaCluster] = queue.LifoQueue()
        for _ in range(CLUSTERS):
            self._free.put(KafkaCluster(settings, patience_s=PATIENCE_S))
        self._closing = threading.Lock()

    def learn(self, brokers: dict[int, MetadataResponseBroker]) -> None:
        """Note which brokers there are now."""
        self.known_brokers = brokers

    def close(self) -> None:
        """Close the connections without waiting for those in use."""
        with self._closing, contextlib.suppress(queue.Empty):
            while True:
                self._free.get_nowait().__exit__()

    @contextlib.contextmanager
    def _cluster(self) -> Iterator[KafkaCluster]:
        try:
            cluster = self._free.get(timeout=WAIT_S)
        except queue.Empty:
            raise CommandError("too many requests at once: the broker is slow, or doesn't answer") from None
        try:
            cluster.brokers = self.known_brokers or cluster.brokers
            yield cluster
        finally:
            self._free.put(cluster)

    # --- Logs

    def piece(self, partition: Partition, offset: int, max_bytes: int) -> Piece:
        """See `ReadPiece`. Below the last stable offset a leader reports which transactions were aborted."""
        with self._cluster() as cluster:
            data = fetch_or_error(cluster, partition, offset, max_bytes, READ_COMMITTED)
            if data.error_code == Error.OFFSET_OUT_OF_RANGE:
                start = list_offsets(cluster, {partition: EARLIEST}).get(partition, 0)
                offset = (
                    start if offset < start else list_offsets(cluster, {partition: LATEST_OFFSET})[partition]
                )
                data = fetch_or_error(cluster, partition, offset, max_bytes, READ_COMMITTED)
            raise_for(partition, data.error_code)
            if data.last_stable_offset <= offset < data.high_watermark:
                data = fetch_or_error(cluster, partition, offset, max_bytes, READ_UNCOMMITTED)
                raise_for(partition, data.error_code)
            records = data.records if isinstance(data.records, bytes | memoryview) else b""
            aborted = data.aborted_transactions or []
            return Piece(
                data.log_start_offset,
                data.last_stable_offset,
                data.high_watermark,
                records,
                frozenset((each.producer_id, each.first_offset) for each in aborted),
            )

    def offset_at(self, partition: Partition, place: Place) -> int:
        """Return the place as an offset. A given offset may be outside of the partition."""
        if place.offset is not None:
            return place.offset
        with self._cluster() as cluster:
            start = list_offsets(cluster, {partition: EARLIEST}).get(partition)
            end = list_offsets(cluster, {partition: LATEST_OFFSET}).get(partition)
            if start is None or end is None:
                raise CommandError(f"{partition[0]}-{partition[1]} doesn't exist, or has no leader")
            if place.time_ms is not None:
                found = list_offsets(cluster, {partition: place.time_ms}).get(partition, -1)
                return found if found >= 0 else end
            if place.last is not None:
                return max(start, end - place.last)
            return start if place.word == "earliest" else end

    # --- What there is

    def topic(self, name: str) -> dict[str, Any]:
        """Return its partitions and its settings."""
        with self._cluster() as cluster:
            rows = partition_rows(cluster, cluster.topics([name]))
            settings = as_json(SETTINGS_COLUMNS, settings_rows(cluster, name))
            return {"partitions": as_json(PARTITION_COLUMNS, rows), "settings": settings}

    def broker(self, node: int) -> dict[str, Any]:
        """Return its settings."""
        with self._cluster() as cluster:
            rows = settings_rows(cluster, str(node), BROKER)
            return {"settings": as_json(SETTINGS_COLUMNS, rows)}

    def groups(self) -> list[dict[str, Any]]:
        """Return all groups, as `barnabas groups` lists them."""
        with self._cluster() as cluster:
            rows = [
                [each.name, each.kind, each.protocol, each.state, each.coordinator]
                for each in list_groups(cluster)
            ]
            return as_json(LIST_COLUMNS, rows)

    def group(self, name: str) -> dict[str, Any]:
        """Return what `barnabas groups NAME --json` prints."""
        with self._cluster() as cluster:
            listed = find_group(cluster, name)
            if listed is None:
                raise CommandError(f"there is no group {name}")
            group = describe_group(cluster, listed)
            is_share = listed.kind == SHARE_KIND
            lags = share_lags(cluster, group) if is_share else lags_of(cluster, group, EFFORT)
            return document_of_group(group, lags)

    def transactions(self) -> list[dict[str, Any]]:
        """Return what `barnabas transactions --json` prints."""
        with self._cluster() as cluster:
            return [document_of(each) for each in list_transactions(cluster)]

    def at_a_glance(self, topics: Sequence[str]) -> dict[str, Any]:
        """Like `explanation`, but counts with little reading, because it is repeated again and again."""
        return self._explained(topics, LITTLE, with_tails=False)

    def explanation(self, topics: Sequence[str]) -> dict[str, Any]:
        """Return what `barnabas transactions explain --json` prints, and the same in words."""
        return self._explained(topics, EFFORT, with_tails=bool(topics))

    def _explained(self, topics: Sequence[str], effort: Effort, *, with_tails: bool) -> dict[str, Any]:
        with self._cluster() as cluster:
            named = cluster.topics_left(topics) if topics else cluster.topics(internal=True)
            found = explain(cluster, named, effort, with_tails=with_tails)
            now_ms = round(time.time() * 1000)
            document = as_document(found, self.where, now_ms)
            return {**document, "words": told_in_words(found, self.where, now_ms)}

    def rights(self) -> dict[str, Any]:
        """Return users and ACLs, or for each the reason why it couldn't be read."""
        found: dict[str, Any] = {"acls": None, "users": None}
        with self._cluster() as cluster:
            try:
                acls = acls_of(cluster)
                found["acls"] = None if acls is None else [vars(each) for each in acls]
            except CommandError as error:
                found["acls_error"] = str(error)
            try:
                found["users"] = users_of(cluster)
            except CommandError as error:
                found["users_error"] = str(error)
        return found

    def clients(self) -> dict[str, Any]:
        """Return the clients according to the brokers' metrics listeners."""
        return self._telemetry.all()

    def client(self, instance_id: str, listener: str) -> dict[str, Any]:
        """Return one client, with everything that it has reported there."""
        return self._telemetry.one(instance_id, listener)

    def partitions_of(self, topic: str) -> int:
        """Return its number of partitions; 0 if it doesn't exist."""
        with self._cluster() as cluster:
            return sum(len(each.partitions) for each in cluster.topics_left([topic]))

    # --- Actions: each first returns a question, and is done when it is requested again with what was seen

    def abort(self, asked: Mapping[str, Any], *, execute: bool) -> dict[str, Any]:
        """Abort a transactional id's transaction, or one that hangs."""
        with self._cluster() as cluster:
            if "id" in asked:
                found = transaction_to_fence(cluster, text_of(asked, "id"))
                question = question_of_fencing(found)
                seen = f"{found.producer_id} {found.producer_epoch} {found.started_ms}"
                if not execute:
                    return {"question": question, "seen": seen}
                _must_be_as_seen(asked, seen)
                return {"done": fence_transaction(cluster, found)}
            partition = partition_of(asked)
            now_ms = round(time.time() * 1000)
            start_offset = number_of(asked, "start_offset")
            one = hanging_to_abort(cluster, partition, start_offset, now_ms, self.where, force=False)
            seen = f"{one.open.producer_id} {one.open.producer_epoch} {one.verdict}"
            if not execute:
                return {"question": question_of_aborting(one), "seen": seen}
            _must_be_as_seen(asked, seen)
            return {"done": abort_hanging(cluster, one)}

    def reset(self, asked: Mapping[str, Any], *, execute: bool) -> dict[str, Any]:
        """Reset the offsets of a group."""
        with self._cluster() as cluster:
            topics = texts_of(asked, "topics")
            to = text_of(asked, "to").split()
            plan = plan_of_reset(cluster, text_of(asked, "group"), topics, to, all_topics=not topics)
            if not plan.is_there:
                raise CommandError(f"there is no group {plan.group}")
            rows = plan.rows({})
            seen = repr([(*partition, plan.before.get(partition)) for partition in sorted(plan.after)])
            if not execute:  # the target isn't part of it: the end of a busy log keeps moving
                table = as_json(RESET_COLUMNS, rows)
                return {"question": question_of_reset(plan), "seen": seen, "table": table}
            _must_be_as_seen(asked, seen)
            failures = execute_reset(cluster, plan)
            failed = [f"{key[0]}-{key[1]}: {why}" for key, why in sorted(failures.items()) if why]
            if failed:
                raise CommandError("; ".join(failed))
            return {"done": f"{plan.group}: set"}

    def delete_records(self, asked: Mapping[str, Any], *, execute: bool) -> dict[str, Any]:
        """Delete the records before an offset."""
        partition = partition_of(asked)
        before = number_of(asked, "before")
        name = f"{partition[0]}-{partition[1]}"
        with self._cluster() as cluster:
            start = list_offsets(cluster, {partition: EARLIEST}).get(partition)
            end = list_offsets(cluster, {partition: LATEST_OFFSET}).get(partition)
            if start is None or end is None:
                raise CommandError(f"{name} doesn't exist, or has no leader")
            if not start < before <= end:
                raise CommandError(
                    f"{name} has offsets {start} to {end - 1}: none of these is before {before}"
                )
            seen = f"{start}"
            if not execute:
                question = f"Delete offsets {start} to {before - 1} of {name}, for good?"
                return {"question": question, "seen": seen}
            _must_be_as_seen(asked, seen)
            return {"done": f"{name} now starts at {delete_records(cluster, partition, before)}"}


def _must_be_as_seen(asked: Mapping[str, Any], seen: str) -> None:
    if asked.get("seen") != seen:
        raise CommandError("it has changed meanwhile; nothing was done")
