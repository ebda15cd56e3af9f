"""A broker's records about transactions in `__transaction_state`, and the `.txnindex` of a segment."""

from __future__ import annotations

import struct
from typing import Any

from ..batches import batch
from ..group_requests import coordinator_is_there as group_coordinator_is_there
from ..play import Play, script
from ..scene import Topic
from ..transaction_log import ends, written_since
from ..transaction_requests import Fields, Producer, coordinator_is_there, init, rest
from .transactions_reading import interleaved


class Slowly(Producer):
    """A producer that lets time pass before each of its records."""

    def _until_not_concurrent(self, api: str, version: int, asked: Fields) -> Any:
        self.play.tick()
        return super()._until_not_concurrent(api, version, asked)

    def send(self, topic: Topic, partition: int = 0, count: int = 1, **lies: Any) -> int:
        self.play.tick()
        return super().send(topic, partition, count, **lies)

    def commit_offsets(self, group: str, *parts: tuple[Topic, int, int]) -> Producer:
        self.play.tick()
        return super().commit_offsets(group, *parts)


def each_way_of_a_transaction(play: Play, topic: Topic) -> None:
    for tv in (1, 2):
        for commit in (True, False):
            producer = Slowly(play, f"{'committed' if commit else 'aborted'}{tv}", tv=tv).init()
            producer.send(topic, 1, count=2)
            producer.send(topic, 0)
            producer.end(commit=commit)
            producer.send(topic, 1)
            producer.commit_offsets(play.name("g"), (topic, 0, 1))
            producer.end(commit=not commit)
            producer.init()
        fenced = Slowly(play, f"fenced{tv}", tv=tv).init()
        fenced.send(topic)
        fenced.init()
        fenced.init(producer_id=fenced.producer_id, producer_epoch=fenced.producer_epoch)
        nothing = Slowly(play, f"nothing{tv}", tv=tv).init()
        nothing.add()
        nothing.end()
        again = Slowly(play, f"again{tv}", tv=tv).init()
        again.add((topic, 0)).add((topic, 0)).add((topic, 1), (topic, 0)).end()
    empty = Slowly(play, "empty abort").init()
    empty.end(commit=False)
    empty.end(commit=False)
    turns = Slowly(play, "turns").init()
    for tv in (1, 2, 1, 2):
        turns.tv = tv
        turns.send(topic)
        turns.end()
    Slowly(play, "timeout", timeout_ms=1_234).init()
    retried = Slowly(play, "retried").init()
    old = {"producer_id": retried.producer_id, "producer_epoch": retried.producer_epoch}
    play.quietly("InitProducerId", 5, init(retried.transactional_id) | old)
    play.quietly("InitProducerId", 5, init(retried.transactional_id) | old)
    rest(play, retried.transactional_id)


@script
def records_of_the_coordinator(play: Play) -> None:
    coordinator_is_there(play)
    group_coordinator_is_there(play, play.name("g"))
    topic = play.topic("t", 2)
    start = ends(play)
    each_way_of_a_transaction(play, topic)
    count: dict[Any, int] = {}
    for found in written_since(play, start, clear_times=True):
        name = found["transactional_id"]
        count[name] = count.get(name, 0) + 1
        play.note(f"record {count[name]} of {name}", found)


@script(properties="transactions")
def transaction_index(play: Play) -> None:
    """The index has an entry of 34 bytes for each aborted transaction that wrote something."""
    coordinator_is_there(play)
    topic = play.topic("t")
    found = interleaved(play, topic)
    nothing = Producer(play, "nothing").init()
    nothing.add((topic, 0)).end(commit=False)
    found["c"].send(topic)
    found["b"].send(topic)
    play.write(topic.name, batch(1, base_timestamp=play.now_ms))
    found["c"].end(commit=False)
    found["b"].end()
    found["b"].send(topic)
    data = play.file(topic.name, 0, f"{0:020}.txnindex")
    for index, (version, producer_id, *offsets) in enumerate(struct.iter_unpack(">hqqqq", data)):
        who = play.names.given["producer id"].get(producer_id, producer_id)
        play.note(f"entry {index}", [version, who, *offsets])
    play.note("the size in bytes", len(data))
