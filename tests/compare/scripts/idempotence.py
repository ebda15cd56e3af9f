"""InitProducerId without a transactional id, and the sequences of idempotent producers."""

from __future__ import annotations

from ..batches import GZIP, batch, record
from ..play import Play, script, versions
from ..requests import fetch, list_offsets, produce

PID = 10**12


def sequenced(
    sequence: int, count: int = 1, *, pid: int = PID, epoch: int = 0, value: bytes = b"x", **more: int
) -> bytes:
    records = [record(value, offset_delta=i) for i in range(count)]
    return batch(records, producer_id=pid, producer_epoch=epoch, base_sequence=sequence, **more)


def init(**fields: object) -> dict[str, object]:
    return {
        "transactional_id": None,
        "transaction_timeout_ms": 60_000,
        "producer_id": -1,
        "producer_epoch": -1,
    } | fields


@script
def init_producer_id(play: Play) -> None:
    play.until("producer ids are there", lambda: play.quietly("InitProducerId", 4, init()).error_code == 0)
    handed_out = []
    for version in versions("InitProducerId"):
        for case, fields in {
            "nothing given": init(),
            "a timeout of 0": init(transaction_timeout_ms=0),
            "a negative timeout": init(transaction_timeout_ms=-1),
            "the greatest timeout": init(transaction_timeout_ms=2**31 - 1),
            "an empty transactional id": init(transactional_id=""),
        }.items():
            answer = play.ask(f"{case} (v{version})", "InitProducerId", version, fields)
            if answer.error_code == 0:
                handed_out.append(answer.producer_id)
    for version in (3, 4, 5):
        for case, fields in {
            "an id and an epoch": init(producer_id=PID, producer_epoch=3),
            "an id of 0 and an epoch of 0": init(producer_id=0, producer_epoch=0),
            "an id and no epoch": init(producer_id=PID),
            "an epoch and no id": init(producer_epoch=3),
            "id -2 and epoch -2": init(producer_id=-2, producer_epoch=-2),
            "an epoch and no id, and an empty transactional id": init(transactional_id="", producer_epoch=3),
        }.items():
            answer = play.ask(f"{case} (v{version})", "InitProducerId", version, fields)
            if answer.error_code == 0:
                handed_out.append(answer.producer_id)
    play.note("each id is handed out once", len(set(handed_out)) == len(handed_out))
    play.note("later ones are larger", handed_out == sorted(handed_out))


@script
def a_producer_id_from_the_broker(play: Play) -> None:
    play.until("producer ids are there", lambda: play.quietly("InitProducerId", 4, init()).error_code == 0)
    topic = play.topic("a")
    answer = play.ask("a producer id", "InitProducerId", 4, init())
    for sequence in (0, 1, 3, 2):
        data = sequenced(sequence, pid=answer.producer_id, epoch=answer.producer_epoch)
        play.ask(f"sequence {sequence}", "Produce", 9, produce((topic, 0, data)))
    play.ask("what was stored", "Fetch", 12, fetch((topic, 0, 0)))


@script
def sequences(play: Play) -> None:
    """Check a batch against the state of its producer."""
    topic = play.topic("a")
    for case, data in {
        "a producer nobody knows starts at 0": sequenced(0, 3),
        "the next sequence": sequenced(3, 2),
        "the same batch again": sequenced(3, 2),
        "the one before it again": sequenced(0, 3),
        "the same sequences with other contents": sequenced(3, 2, value=b"other"),
        "a part of a known batch": sequenced(0, 2),
        "the tail of a known batch": sequenced(1, 2),
        "both known batches in one": sequenced(0, 5),
        "a known batch and one record more": sequenced(3, 3),
        "a gap": sequenced(6, 1),
        "one sequence back": sequenced(4, 1),
        "on from the end": sequenced(5, 1),
        "a lower epoch": sequenced(6, 1, epoch=-1),
        "an epoch of -2": sequenced(6, 1, epoch=-2),
        "a higher epoch that does not start at 0": sequenced(6, 1, epoch=1),
        "a higher epoch that starts at 0": sequenced(0, 1, epoch=1),
        "a duplicate of the old epoch": sequenced(5, 1),
        "a new batch of the old epoch": sequenced(6, 1),
        "the higher epoch goes on": sequenced(1, 1, epoch=1),
        "an epoch far above": sequenced(0, 1, epoch=32767),
        "other producers are not concerned": sequenced(0, 1, pid=PID + 1),
        "a producer nobody knows may start anywhere": sequenced(41, 1, pid=PID + 2, epoch=5),
        "and has to go on from there": sequenced(43, 1, pid=PID + 2, epoch=5),
        "as it does here": sequenced(42, 1, pid=PID + 2, epoch=5),
        "a producer nobody knows with epoch -1": sequenced(0, 1, pid=PID + 3, epoch=-1),
        "its epoch -1 goes on": sequenced(1, 1, pid=PID + 3, epoch=-1),
        "its epoch -1 with a gap": sequenced(3, 1, pid=PID + 3, epoch=-1),
        "a producer nobody knows with epoch -2": sequenced(0, 1, pid=PID + 4, epoch=-2),
        "producer id 0": sequenced(0, 1, pid=0, epoch=7),
        "the greatest producer id": sequenced(0, 1, pid=2**63 - 1),
        "a compressed batch": sequenced(1, 3, pid=PID + 1, codec=GZIP),
        "its duplicate, not compressed": sequenced(1, 3, pid=PID + 1),
    }.items():
        play.ask(case, "Produce", 9, produce((topic, 0, data)))
    play.ask("what was stored", "Fetch", 12, fetch((topic, 0, 0)))


@script
def the_last_five_batches_are_known(play: Play) -> None:
    topic = play.topic("a")
    for sequence in range(7):
        play.ask(f"sequence {sequence}", "Produce", 9, produce((topic, 0, sequenced(sequence))))
    for sequence in range(7):
        play.ask(f"sequence {sequence} again", "Produce", 9, produce((topic, 0, sequenced(sequence))))
    play.ask("the end", "ListOffsets", 4, list_offsets((topic.name, 0, -1)))


@script
def wrapped_sequences(play: Play) -> None:
    topic = play.topic("a", 4)
    most = 2**31 - 1
    for case, partition, data in (
        ("up to the greatest", 0, sequenced(most - 1, 2)),
        ("then from 0", 0, sequenced(0, 2)),
        ("the one before 0 again", 0, sequenced(most - 1, 2)),
        ("that from 0 again", 0, sequenced(0, 2)),
        ("the next", 0, sequenced(2, 1)),
        ("over the end within a batch", 1, sequenced(most - 1, 4)),
        ("over the end within a batch, again", 1, sequenced(most - 1, 4)),
        ("on from there", 1, sequenced(2, 1)),
        ("to the last but one", 2, sequenced(most - 1, 1)),
        ("0 too early", 2, sequenced(0, 1)),
        ("over the end within the next batch", 2, sequenced(most, 3)),
        ("that again", 2, sequenced(most, 3)),
        ("on from that", 2, sequenced(2, 1)),
        ("the greatest alone", 3, sequenced(most, 1)),
        ("1 behind the greatest", 3, sequenced(1, 1)),
        ("0 behind the greatest", 3, sequenced(0, 1)),
    ):
        play.ask(case, "Produce", 9, produce((topic, partition, data)))


@script
def producers_are_known_per_partition(play: Play) -> None:
    topic = play.topic("a", 3)
    play.ask(
        "the first sequence in two partitions",
        "Produce",
        9,
        produce((topic, 0, sequenced(0)), (topic, 1, sequenced(0))),
    )
    play.ask(
        "the next in one, a gap in the other",
        "Produce",
        9,
        produce((topic, 0, sequenced(1)), (topic, 1, sequenced(2))),
    )
    play.ask(
        "a duplicate, a gap and a new partition",
        "Produce",
        9,
        produce((topic, 0, sequenced(1)), (topic, 1, sequenced(7)), (topic, 2, sequenced(9))),
    )


@script
def answers_to_duplicates_and_gaps_in_every_version(play: Play) -> None:
    topic = play.topic("a")
    play.write(topic.name, sequenced(0, 3), sequenced(3, 1), sequenced(0, 1, pid=PID + 1, epoch=4))
    for version in versions("Produce"):
        play.ask(f"a duplicate (v{version})", "Produce", version, produce((topic, 0, sequenced(0, 3))))
        play.ask(f"a gap (v{version})", "Produce", version, produce((topic, 0, sequenced(9))))
        play.ask(
            f"an old epoch (v{version})",
            "Produce",
            version,
            produce((topic, 0, sequenced(1, pid=PID + 1, epoch=3))),
        )


@script
def a_refused_batch_leaves_the_producer_as_it_was(play: Play) -> None:
    topic = play.topic("a", cleanup_policy="compact", max_message_bytes="1000")
    keyless = batch([record(key=None)], producer_id=PID, producer_epoch=0, base_sequence=1)
    for case, data in (
        ("the first", sequenced(0)),
        ("a record without a key", keyless),
        ("a wrong CRC", sequenced(1, crc=1)),
        ("too large", sequenced(1, value=b"x" * 2000)),
        ("a gap", sequenced(5)),
        (
            "a refused batch of a higher epoch",
            batch([record(key=None)], producer_id=PID, producer_epoch=1, base_sequence=0),
        ),
        ("a higher epoch from 1", sequenced(1, epoch=1)),
        ("the second", sequenced(1)),
    ):
        play.ask(case, "Produce", 9, produce((topic, 0, data)))


@script
def duplicates_with_acks_0(play: Play) -> None:
    topic = play.topic("a")
    for case, data in (
        ("new", sequenced(0)),
        ("a duplicate", sequenced(0)),
        ("a gap", sequenced(5)),
        ("next", sequenced(1)),
    ):
        play.silent(case, "Produce", 9, produce((topic, 0, data), acks=0))
    play.ask("the end", "ListOffsets", 4, list_offsets((topic.name, 0, -1)))
