"""Fetch sessions (KIP-227): opening, continuing, changing, forgetting and closing them, and every wrong way to
do so."""

from __future__ import annotations

from typing import Any

from ..batches import batch
from ..play import LONG_MS, SHORT_MS, Play, script
from ..requests import ZERO_ID, fetch, unknown
from ..scene import Topic


class Session:
    """The client's side of one session."""

    def __init__(self, play: Play, version: int = 12) -> None:
        self.play = play
        self.version = version
        self.session_id = 0
        self.epoch = 0

    def open(self, case: str, *parts: Any, **how: Any) -> None:
        answer = self.play.ask(case, "Fetch", self.version, fetch(*parts, session_epoch=0, **how))
        self.session_id, self.epoch = answer.session_id, 1

    def ask(self, case: str, *parts: Any, epoch: int | None = None, **how: Any) -> None:
        """Send the session's next request. A request with an explicit epoch doesn't advance the session."""
        epoch_sent = self.epoch if epoch is None else epoch
        asked = fetch(*parts, session_id=self.session_id, session_epoch=epoch_sent, **how)
        self.play.ask(case, "Fetch", self.version, asked)
        if epoch is None:
            self.epoch += 1


@script
def a_session_in_every_version(play: Play) -> None:
    topic = play.topic("a", 2)
    play.write(topic.name, batch())
    for version in range(7, 19):
        session = Session(play, version)
        session.open(f"opened (v{version})", (topic, 0, 0), (topic, 1, 0))
        session.ask(f"nothing asked anew: the same data again (v{version})")
        end = play.write(topic.name, batch()) + 1
        session.ask(f"the offset moved to the end (v{version})", (topic, 0, end))
        session.ask(f"nothing new (v{version})")
        play.write(topic.name, batch(2), partition=1)
        session.ask(f"the other one has something new (v{version})")
        session.ask(f"a wrong epoch (v{version})", epoch=77)
        session.ask(f"closed, and served in full (v{version})", (topic, 1, 0), epoch=-1)
        session.ask(f"gone (v{version})")


@script
def opening_and_closing(play: Play) -> None:
    topic = play.topic("a", 2)
    play.write(topic.name, batch())
    play.ask("no session", "Fetch", 12, fetch((topic, 0, 0), session_id=0, session_epoch=-1))
    play.ask(
        "no session and an epoch below -1", "Fetch", 12, fetch((topic, 0, 0), session_id=0, session_epoch=-2)
    )
    play.ask("id 0 and epoch 1", "Fetch", 12, fetch((topic, 0, 0), session_id=0, session_epoch=1))
    play.ask(
        "an unknown id and epoch 0 opens one",
        "Fetch",
        12,
        fetch((topic, 0, 0), session_id=77, session_epoch=0),
    )
    play.ask(
        "a negative id and epoch 0 opens one",
        "Fetch",
        12,
        fetch((topic, 0, 0), session_id=-77, session_epoch=0),
    )
    play.ask("an unknown id and epoch -1", "Fetch", 12, fetch((topic, 0, 0), session_id=77, session_epoch=-1))
    play.ask("an unknown id and epoch 1", "Fetch", 12, fetch((topic, 0, 0), session_id=77, session_epoch=1))
    play.ask("a negative id and epoch 1", "Fetch", 12, fetch((topic, 0, 0), session_id=-77, session_epoch=1))
    session = Session(play)
    session.open("a session", (topic, 0, 0))
    first_id = session.session_id
    session.ask("epoch 0 with its id opens another", (topic, 1, 0), epoch=0)
    session.ask("the first one is gone")
    session = Session(play)
    session.open("a session without partitions")
    play.note("has an id", session.session_id > 0 and session.session_id != first_id)
    session.ask("goes on without partitions")
    session.ask("is gone")
    session = Session(play)
    session.open("a session to be closed", (topic, 0, 0))
    session.ask("closed without partitions", epoch=-1)
    session.ask("gone as well")
    session = Session(play)
    session.open("a session for an error in isolation", (topic, 0, 0))
    session.ask("an isolation level that is none", isolation_level=7)
    session.ask("the session after that")


@script
def epochs(play: Play) -> None:
    topic = play.topic("a")
    play.write(topic.name, batch())
    session = Session(play)
    session.open("opened", (topic, 0, 0))
    for epoch in (2, 5, -2, -5, 2**31 - 1):
        session.ask(f"epoch {epoch} in place of 1", epoch=epoch)
    session.ask("epoch 1")
    session.ask("epoch 1 again", epoch=1)
    session.ask("epoch 2")
    session.ask("epoch 2 again, with a new partition", (topic, 9, 0), epoch=2)
    session.ask("epoch 3")


@script
def what_an_incremental_answer_lists(play: Play) -> None:
    topic = play.topic("a", 4)
    session = Session(play)
    session.open("four empty partitions", *((topic, i, 0) for i in range(4)))
    session.ask("nothing")
    play.write(topic.name, batch(), partition=2)
    session.ask("one with data")
    session.ask("again, as its offset was not moved")
    session.ask("its offset moved", (topic, 2, 1))
    session.ask("nothing once more")
    play.write(topic.name, batch(), partition=0)
    play.write(topic.name, batch(), partition=3)
    session.ask("two with data, one wins", max_bytes=1)
    session.ask("then the other", max_bytes=1)
    session.ask("and in turn", max_bytes=1)
    session.ask("both moved", (topic, 0, 1), (topic, 3, 1))
    session.ask("an offset out of range", (topic, 1, 50))
    session.ask("is told each time")
    session.ask("put right", (topic, 1, 0))
    session.ask("and silent then")
    play.write(topic.name, batch(), partition=1)
    session.ask("a high watermark that moved, and no room for data", (topic, 0, 0), max_bytes=1)
    session.ask("the same offset as before", (topic, 0, 1), (topic, 1, 1))
    session.ask("silence at the end")


@script
def adding_and_forgetting(play: Play) -> None:
    topic = play.topic("a", 3)
    other = play.topic("b")
    for partition in range(3):
        play.write(topic.name, batch(), partition=partition)
    play.write(other.name, batch())
    for version in (7, 12, 13, 18):
        session = Session(play, version)
        session.open(f"one partition (v{version})", (topic, 0, 0))
        session.ask(f"another one added (v{version})", (topic, 1, 0))
        session.ask(f"a topic added (v{version})", (other, 0, 0))
        session.ask(f"one forgotten (v{version})", forgotten=[(topic, [0])])
        session.ask(f"one forgotten that was not there (v{version})", forgotten=[(topic, [7])])
        session.ask(f"an unknown topic forgotten (v{version})", forgotten=[(unknown("nowhere"), [0])])
        session.ask(f"added and forgotten at once (v{version})", (topic, 2, 0), forgotten=[(topic, [2])])
        session.ask(f"updated and forgotten at once (v{version})", (topic, 1, 0), forgotten=[(topic, [1])])
        session.ask(f"what is left (v{version})")
        session.ask(f"a forgotten one added again (v{version})", (topic, 0, 0))
        session.ask(f"all forgotten (v{version})", forgotten=[(topic, [0]), (other, [0])])
        session.ask(f"gone (v{version})")
        session = Session(play, version)
        session.open(
            f"forgotten in the opening request (v{version})",
            (topic, 0, 0),
            (topic, 1, 0),
            forgotten=[(topic, [0])],
        )
        session.ask(f"still there (v{version})")


@script
def a_zero_id_in_a_session(play: Play) -> None:
    topic = play.topic("a")
    session = Session(play, 13)
    session.open("opened", (topic, 0, 0))
    session.ask("a zero id added", (unknown("", ZERO_ID), 0, 0))
    session.ask("it is told each time")


@script
def unknown_partitions_in_a_session(play: Play) -> None:
    topic = play.topic("a")
    play.write(topic.name, batch())
    for version in (12, 13):
        late = play.name(f"late-v{version}")
        session = Session(play, version)
        session.open(
            f"an unknown topic, an unknown partition, a good one (v{version})",
            (unknown(late), 0, 0),
            (topic, 9, 0),
            (topic, 0, 0),
        )
        session.ask(f"the unknown ones are told each time (v{version})", (topic, 0, 1))
        if version == 12:
            session.ask(f"an empty name added (v{version})", (unknown("", ZERO_ID), 0, 0))
        session.ask(f"all are told (v{version})")
        created = play.topic(f"late-v{version}")
        play.write(created.name, batch())
        session.ask(f"the topic was created (v{version})")
        session.ask(f"and once more (v{version})")
        session.ask(f"only unknown ones left (v{version})", forgotten=[(topic, [0])])


@script
def a_topic_deleted_and_created_again(play: Play) -> None:
    for version in (12, 13):
        topic = play.topic(f"v{version}")
        other = play.topic(f"v{version}-other")
        play.write(topic.name, batch())
        session = Session(play, version)
        session.open(f"opened (v{version})", (topic, 0, 0), (other, 0, 0))
        _delete(play, topic)
        session.ask(f"deleted (v{version})")
        session.ask(f"still deleted (v{version})")
        again = play.topic(f"v{version}")
        play.write(again.name, batch(3))
        session.ask(f"created again (v{version})")
        session.ask(f"created again, once more (v{version})")
        session.ask(f"the new one added (v{version})", (again, 0, 0))


def _delete(play: Play, topic: Topic) -> None:
    play.quietly("DeleteTopics", 4, {"topic_names": [topic.name], "timeout_ms": 10_000})
    play.until_gone(topic.name)


@script
def names_and_ids_do_not_mix(play: Play) -> None:
    topic = play.topic("a")
    play.write(topic.name, batch())
    for opened, asked_with in ((12, 13), (13, 12), (7, 18), (18, 7)):
        session = Session(play, opened)
        session.open(f"opened with v{opened}", (topic, 0, 0))
        if session.session_id == 0:
            continue
        session.version = asked_with
        session.ask(f"asked with v{asked_with}, opened with v{opened}", epoch=1)
        session.ask(f"asked with v{asked_with} and a wrong epoch, opened with v{opened}", epoch=9)
        session.version = opened
        session.ask(f"asked with v{opened} again, after v{asked_with}")
        session.version = asked_with
        session.ask(f"closed with v{asked_with}, opened with v{opened}", (topic, 0, 0), epoch=-1)
        session.version = opened
        session.ask(f"gone after that, v{opened} and v{asked_with}")


@script
def waiting_in_a_session(play: Play) -> None:
    topic = play.topic("a", 2)
    session = Session(play)
    session.open("an empty partition", (topic, 0, 0), (topic, 1, 0), min_bytes=1, max_wait_ms=SHORT_MS)
    session.ask("nothing comes", min_bytes=1, max_wait_ms=SHORT_MS)
    asked = fetch(session_id=session.session_id, session_epoch=2, min_bytes=1, max_wait_ms=LONG_MS)
    waiting = play.send("something comes", "Fetch", 12, asked, on="waiting")
    play.write(topic.name, batch(), partition=1)
    play.receive(waiting)
    session.epoch = 3
    session.ask("unmoved data counts", min_bytes=1, max_wait_ms=LONG_MS)
    session.ask("moved", (topic, 1, 1), min_bytes=1, max_wait_ms=SHORT_MS)
    session.ask("an error counts", (topic, 1, 99), min_bytes=1, max_wait_ms=LONG_MS)
    session.ask(
        "an unknown partition does not", (topic, 1, 1), (topic, 9, 0), min_bytes=1, max_wait_ms=SHORT_MS
    )


@script
def the_order_within_a_session(play: Play) -> None:
    """Partitions that returned data move to the end, so that all get their turn."""
    topic = play.topic("a", 4)
    for partition in range(4):
        play.write(topic.name, batch(), partition=partition)
    session = Session(play)
    session.open("all four, room for one", *((topic, i, 0) for i in (2, 0, 3, 1)), max_bytes=1)
    for turn in range(6):
        session.ask(f"turn {turn}", max_bytes=1)
    session.ask("all", max_bytes=100_000)
    session.ask("one updated", (topic, 3, 0), max_bytes=1)
    session.ask("and the next", max_bytes=1)


@script
def two_connections_share_a_session(play: Play) -> None:
    topic = play.topic("a")
    play.write(topic.name, batch())
    session = Session(play)
    session.open("opened here", (topic, 0, 0))
    asked = fetch(session_id=session.session_id, session_epoch=1)
    play.ask("asked there", "Fetch", 12, asked, on="other")
    play.drop("main")
    session.epoch = 2
    session.ask("and here, over a new connection")
