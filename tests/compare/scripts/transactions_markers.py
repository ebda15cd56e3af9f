"""WriteTxnMarkers: how a partition treats markers that a client sends, as Kafka's tool does to abort a hanging
transaction."""

from __future__ import annotations

from ..group_requests import coordinator_is_there as group_coordinator_is_there
from ..group_requests import fetch_offsets
from ..play import Play, script, versions
from ..requests import fetch, produce, unknown
from ..scene import Topic
from ..transaction_log import partition_of
from ..transaction_requests import (
    STRANGER,
    Producer,
    coordinator_is_there,
    describe,
    end_txn,
    marker,
    markers,
    producers,
    rest,
    transactional,
)


def look(play: Play, when: str, topic: Topic) -> None:
    play.ask(f"the log {when}", "Fetch", 12, fetch((topic, 0, 0), isolation_level=1))
    play.ask(f"the producers {when}", "DescribeProducers", 0, producers((topic, 0)))


@script
def epochs(play: Play) -> None:
    """Each relation of epochs, with and without an open transaction, in every transaction version."""
    coordinator_is_there(play)
    topic = play.topic("t", 64)
    partitions = iter(range(64))
    for version, transaction_version in ((1, 0), (2, 0), (2, 1), (2, 2), (2, 3), (2, -1)):
        for is_open in (True, False):
            for relation in (-1, 0, 1, 5, 32767 - 1) if transaction_version >= 0 else (0,):
                index = next(partitions)
                producer = Producer(play, f"p{index}", tv=1).init().init()
                if is_open:
                    producer.send(topic, index)
                else:
                    plain = producer.batch(topic, index, attributes=0)
                    play.quietly("Produce", 9, produce((topic, index, plain)))
                asked = markers(
                    marker(
                        producer.producer_id,
                        producer.producer_epoch + relation,
                        (topic, index),
                        commit=relation == 5,
                        transaction_version=transaction_version,
                    )
                )
                label = (
                    f"{'open' if is_open else 'nothing open'}, epoch {relation:+}, "
                    f"v{version}, transaction version {transaction_version}"
                )
                play.ask(label, "WriteTxnMarkers", version, asked)
                play.ask(f"again: {label}", "WriteTxnMarkers", version, asked)
                play.ask(f"the log: {label}", "Fetch", 12, fetch((topic, index, 0), isolation_level=1))
                play.ask(f"the producers: {label}", "DescribeProducers", 0, producers((topic, index)))


@script
def several_markers(play: Play) -> None:
    topic = play.topic("t", 3)
    nowhere = unknown(play.name("nowhere"))
    for version in versions("WriteTxnMarkers"):
        for case, asked in {
            "none": markers(),
            "no topics": markers(marker(STRANGER, 0)),
            "a topic without partitions": markers(
                marker(STRANGER, 0) | {"topics": [{"name": topic.name, "partition_indexes": []}]}
            ),
            "an unknown topic": markers(marker(STRANGER, 0, (nowhere, 0))),
            "an unknown partition": markers(marker(STRANGER, 0, (topic, 7), (topic, 0))),
            "two partitions": markers(marker(STRANGER, 0, (topic, 0), (topic, 1), commit=True)),
            "two producers": markers(
                marker(STRANGER, 0, (topic, 0)), marker(STRANGER + 1, 0, (topic, 0), commit=True)
            ),
            "good and bad ones": markers(
                marker(STRANGER, 1, (topic, 0), (nowhere, 0), commit=True),
                marker(STRANGER + 1, 1, (topic, 9), (topic, 2)),
            ),
            "an epoch of before": markers(marker(STRANGER, 0, (topic, 0), (topic, 1))),
            "a coordinator epoch of -1": markers(marker(STRANGER, 2, (topic, 0), coordinator_epoch=-1)),
            "a coordinator epoch of 5": markers(marker(STRANGER, 2, (topic, 0), coordinator_epoch=5)),
            "a coordinator epoch of 4 then": markers(marker(STRANGER, 2, (topic, 0), coordinator_epoch=4)),
            "of 4 and a new epoch": markers(marker(STRANGER, 3, (topic, 0), coordinator_epoch=4)),
            "of 4 and an old epoch": markers(marker(STRANGER, 1, (topic, 0), coordinator_epoch=4)),
            "of -1 then": markers(marker(STRANGER, 3, (topic, 0), coordinator_epoch=-1)),
            "a negative epoch": markers(marker(STRANGER + 2, -1, (topic, 0))),
            "the last epoch": markers(marker(STRANGER + 2, 32767, (topic, 0))),
            "the last epoch again": markers(marker(STRANGER + 2, 32767, (topic, 0), transaction_version=2)),
            "producer id -1": markers(marker(-1, 0, (topic, 2))),
            "a partition of offsets that isn't there": markers(
                marker(STRANGER, 0, ("__consumer_offsets", 99))
            ),
        }.items():
            if version == 1 or case not in ("two producers",):
                play.ask(f"{case} (v{version})", "WriteTxnMarkers", version, asked)
        play.ask(
            f"the logs (v{version})",
            "Fetch",
            12,
            fetch(*((topic, index, 0) for index in range(3)), isolation_level=1),
        )
        play.ask(
            f"the producers (v{version})",
            "DescribeProducers",
            0,
            producers(*((topic, index) for index in range(3))),
        )


@script
def markers_of_the_coordinators_producers(play: Play) -> None:
    """A client's marker in a transaction's partition: the coordinator doesn't notice, and sends its own, too."""
    coordinator_is_there(play)
    for tv in (1, 2):
        for version, transaction_version in ((1, 0), (2, 0), (2, 1), (2, 2)):
            for relation in (-1, 0, 1):
                label = f"V{tv}, v{version}, transaction version {transaction_version}, epoch {relation:+}"
                suffix = f"{tv}{version}{transaction_version}{relation}"
                topic = play.topic(suffix)
                producer = Producer(play, suffix, tv=tv).init().init()
                producer.send(topic, count=2)
                name, producer_id, epoch = producer.who
                asked = markers(
                    marker(producer_id, epoch + relation, (topic, 0), transaction_version=transaction_version)
                )
                play.ask(label, "WriteTxnMarkers", version, asked)
                play.ask(f"again: {label}", "WriteTxnMarkers", version, asked)
                look(play, f"then: {label}", topic)
                play.ask(f"what is known: {label}", "DescribeTransactions", 0, describe(name))
                for case, sequence in (("the next batch", 2), ("from 0", 0)):
                    data = transactional(play, sequence, producer_id=producer_id, producer_epoch=epoch)
                    asked = produce((topic, 0, data), transactional_id=name)
                    play.ask(f"{case}: {label}", "Produce", 11 if tv == 1 else 12, asked)
                end = end_txn(name, producer_id, epoch, commit=True)
                play.ask(f"the end: {label}", "EndTxn", 4 if tv == 1 else 5, end)
                if tv == 2 or relation < 1:
                    rest(play, name)
                # Otherwise the partition refuses the coordinator's marker, and the end never completes.
                play.ask(f"what is known at last: {label}", "DescribeTransactions", 0, describe(name))
                look(play, f"at last: {label}", topic)


@script
def markers_of_pending_offsets(play: Play) -> None:
    """A marker in `__consumer_offsets`: the offsets exist once the marker is answered."""
    coordinator_is_there(play)
    topic = play.topic("t", 2)
    for tv in (1, 2):
        for commit in (True, False):
            label = f"V{tv}, {'commit' if commit else 'abort'}"
            group = play.name(f"g{tv}{commit}")
            group_coordinator_is_there(play, group)
            place = ("__consumer_offsets", partition_of(group))
            producer = Producer(play, f"p{tv}{commit}", tv=tv).init()
            producer.commit_offsets(group, (topic, 0, 7), (topic, 1, 8))
            _, producer_id, epoch = producer.who
            stable = fetch_offsets(8, group, [(topic, (0, 1))]) | {"require_stable": True}
            for case, version, one in (
                ("an old epoch", 1, marker(producer_id, epoch - 1, place, commit=commit)),
                (
                    "an equal epoch",
                    2,
                    marker(producer_id, epoch, place, commit=commit, transaction_version=2),
                ),
                ("a stranger", 1, marker(STRANGER, epoch, place, commit=commit)),
                ("the marker", 1, marker(producer_id, epoch, place, commit=commit)),
                ("the marker again", 1, marker(producer_id, epoch, place, commit=commit)),
            ):
                play.ask(f"{case}, {label}", "WriteTxnMarkers", version, markers(one))
                play.ask(f"the offsets after {case}, {label}", "OffsetFetch", 8, stable)
            producer.commit_offsets(group, (topic, 0, 9))
            producer.end(commit=not commit)
            play.ask(f"the offsets after the end, {label}", "OffsetFetch", 8, stable)
            play.ask(f"the group after the end, {label}", "DescribeGroups", 6, {"groups": [group]})
