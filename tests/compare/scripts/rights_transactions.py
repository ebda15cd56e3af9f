"""The table of rights: transactions and idempotent producers."""

from __future__ import annotations

from ..batches import TRANSACTIONAL, batch
from ..group_requests import coordinator_is_there as group_coordinator_is_there
from ..play import Play, script
from ..requests import produce
from ..rights import Table, rows
from ..transaction_requests import (
    STRANGER,
    Producer,
    add_offsets,
    add_partitions,
    coordinator_is_there,
    end_txn,
    init,
    rest,
    txn_commit,
)

PROPERTIES = "rights"


@script(properties=PROPERTIES)
def transactions(play: Play) -> None:
    table = Table(play)
    names = table.names
    group_coordinator_is_there(play, *names)
    coordinator_is_there(play)
    opened = [Producer(play, suffix, tv=1).init() for suffix in ("mine", "other")]
    for producer in opened:
        producer.add((table.mine, 0), (table.other, 0))
    _, producer_id, epoch = opened[0].who
    ids = {"mine": names.mine, "other": names.other, "gone-mine": names.gone_mine}
    parts = [(topic, 0) for topic in table.topics]
    committed = [(topic, 0, 5) for topic in table.topics]
    rows(table, "DescribeTransactions", 0, {"all": {"transactional_ids": [*names]}})
    rows(table, "ListTransactions", 2, {"all": {}})
    rows(
        table,
        "AddPartitionsToTxn",
        3,
        {case: add_partitions(name, producer_id, epoch, *parts) for case, name in ids.items()}
        | {
            f"one of {case}": add_partitions(name, producer_id, epoch, *parts[:1])
            for case, name in ids.items()
        },
    )
    rows(
        table,
        "AddPartitionsToTxn",
        5,
        {
            case: add_partitions(name, producer_id, epoch, *parts, verify_only=True)
            for case, name in ids.items()
        },
    )
    rows(
        table,
        "AddOffsetsToTxn",
        4,
        {
            f"{case} to {group}": add_offsets(name, producer_id, epoch, by_group)
            for case, name in ids.items()
            for group, by_group in ids.items()
        },
    )
    for version in (3, 4, 5):
        rows(
            table,
            "TxnOffsetCommit",
            version,
            {
                f"{case} to {group}": txn_commit(name, by_group, producer_id, epoch, *committed)
                for case, name in ids.items()
                for group, by_group in ids.items()
            },
        )
    by_id = txn_commit(names.mine, names.mine, producer_id, epoch, *committed)
    by_id["topics"] = [
        asked | {"topic_id": topic.topic_id}
        for asked, topic in zip(by_id["topics"], table.topics, strict=True)
    ]
    rows(table, "TxnOffsetCommit", 6, {"by id": by_id})
    for version in (4, 5):
        rows(
            table,
            "EndTxn",
            version,
            {case: end_txn(name, STRANGER, 0, commit=False) for case, name in ids.items()},
        )
    marker = {
        "producer_id": STRANGER,
        "producer_epoch": 0,
        "transaction_result": False,
        "topics": [{"name": topic.name, "partition_indexes": [0]} for topic in (table.mine, table.other)],
        "coordinator_epoch": 0,
    }
    rows(table, "WriteTxnMarkers", 1, {"of a stranger": {"markers": [marker]}})
    for version in (9, 11, 12):
        written = batch(attributes=TRANSACTIONAL, producer_id=STRANGER + 1, producer_epoch=0, base_sequence=0)
        rows(
            table,
            "Produce",
            version,
            {
                f"in {case}": produce(*((topic, 0, written) for topic in table.topics), transactional_id=name)
                for case, name in ids.items()
            },
        )
    one = batch(producer_id=STRANGER + 2, producer_epoch=0, base_sequence=0)
    rows(table, "Produce", 12, {"idempotent": produce(*((topic, 0, one) for topic in table.topics))})
    rows(
        table,
        "Produce",
        12,
        {"with the id alone": produce((table.mine, 0, one), transactional_id=names.mine)},
    )
    for producer in opened:
        producer.end(commit=False)
    rest(play, names.mine, names.other)
    rows(table, "InitProducerId", 5, {"idempotent": init(None)})
    rows(table, "InitProducerId", 5, {case: init(name) for case, name in ids.items()})
