"""InitProducerId with a transactional id: timeouts, fencing, epochs, and producers that continue (KIP-360)."""

from __future__ import annotations

from collections.abc import Iterator

from ..play import Play, script, versions
from ..scene import Topic
from ..transaction_requests import (
    STRANGER,
    Producer,
    coordinator_is_there,
    describe,
    end_txn,
    init,
    rest,
)

MAX_TIMEOUT_MS = 900_000


@script
def ids_and_timeouts(play: Play) -> None:
    coordinator_is_there(play)
    for version in versions("InitProducerId"):
        for timeout_ms in (-(2**31), -1, 0, 1, 60_000, MAX_TIMEOUT_MS, MAX_TIMEOUT_MS + 1, 2**31 - 1):
            name = play.name(f"timeout{timeout_ms}-v{version}")
            play.ask(f"timeout {timeout_ms} (v{version})", "InitProducerId", version, init(name, timeout_ms))
            play.ask(
                f"what is known of timeout {timeout_ms} (v{version})",
                "DescribeTransactions",
                0,
                describe(name),
            )
        known = Producer(play, f"known-v{version}").init()
        name = known.transactional_id
        for timeout_ms in (0, MAX_TIMEOUT_MS + 1, 1_234):
            case = f"a known one with timeout {timeout_ms} (v{version})"
            play.ask(case, "InitProducerId", version, init(name, timeout_ms))
            play.ask(f"what is known of {case}", "DescribeTransactions", 0, describe(name))
        for case, name in {
            "a space": play.name(" "),
            "letters of all kinds": play.name("ü\U0001f600"),
            "a long one": play.name("l" * 20_000),
        }.items():
            play.ask(f"{case} (v{version})", "InitProducerId", version, init(name))
            play.ask(f"{case} again (v{version})", "InitProducerId", version, init(name))
        play.ask(f"no id (v{version})", "InitProducerId", version, init(""))
        play.ask(f"no id and a bad timeout (v{version})", "InitProducerId", version, init("", 0))


@script
def an_id_without_an_epoch(play: Play) -> None:
    coordinator_is_there(play)
    known = Producer(play, "known").init()
    for version in (3, 4, 5):
        for case, name, producer_id, epoch, timeout_ms in (
            ("an id alone", known.transactional_id, known.producer_id, -1, 60_000),
            ("an epoch alone", known.transactional_id, -1, 0, 60_000),
            ("an id alone and a bad timeout", known.transactional_id, known.producer_id, -1, 0),
            ("an id alone of an unknown one", play.name("unknown"), known.producer_id, -1, 60_000),
            ("an epoch alone and no transactional id", "", -1, 0, 60_000),
        ):
            asked = init(name, timeout_ms, producer_id, epoch)
            play.ask(f"{case} (v{version})", "InitProducerId", version, asked)


def histories(play: Play, topic: Topic, label: str) -> Iterator[tuple[str, Producer]]:
    """Bring producers to each possible state, at an epoch above 2."""

    def fresh(state: str, tv: int = 2) -> Producer:
        producer = Producer(play, f"{state}-{label}".replace(" ", "-"), tv=tv)
        for _ in range(3):
            producer.init()
        return producer

    yield "empty", fresh("empty")
    yield "empty with a last epoch", _goes_on(fresh("last epoch"))
    for tv in (1, 2):
        ongoing = fresh(f"ongoing{tv}", tv)
        ongoing.send(topic)
        yield f"ongoing, V{tv}", ongoing
        for commit in (True, False):
            done = fresh(f"{'committed' if commit else 'aborted'}{tv}", tv)
            done.send(topic)
            yield f"{'committed' if commit else 'aborted'}, V{tv}", done.end(commit=commit)
    fenced = fresh("fenced")
    fenced.send(topic)
    play.quietly("InitProducerId", 5, init(fenced.transactional_id))
    rest(play, fenced.transactional_id)
    yield "fenced while ongoing", fenced


def _goes_on(producer: Producer) -> Producer:
    return producer.init(producer_id=producer.producer_id, producer_epoch=producer.producer_epoch)


def given(producer: Producer, other: Producer) -> dict[str, tuple[int, int]]:
    mine, epoch = producer.producer_id, producer.producer_epoch
    return {
        "nothing": (-1, -1),
        "the epoch": (mine, epoch),
        "the epoch before": (mine, epoch - 1),
        "two before": (mine, epoch - 2),
        "the next": (mine, epoch + 1),
        "two on": (mine, epoch + 2),
        "epoch 0": (mine, 0),
        "epoch 32766": (mine, 32766),
        "epoch 32767": (mine, 32767),
        "a negative epoch": (mine, -2),
        "a stranger's id": (STRANGER, epoch),
        "a stranger's id and the last epoch": (STRANGER, 32766),
        "another's id": (other.producer_id, other.producer_epoch),
        "a negative id": (-2, epoch),
    }


@script
def what_is_given_in_each_state(play: Play) -> None:
    """Each case has its own transactional id. It is asked again, and once more with the values in its answer."""
    coordinator_is_there(play)
    topic = play.topic("t")
    other = Producer(play, "other").init()
    for index, relation in enumerate(given(other, other)):
        for state, producer in histories(play, topic, str(index)):
            producer_id, epoch = given(producer, other)[relation]
            name = producer.transactional_id
            asked = init(name, 60_000, producer_id, epoch)
            case = f"{relation}, {state}"
            answer = play.ask(case, "InitProducerId", 5, asked)
            rest(play, name)
            play.ask(f"what is known: {case}", "DescribeTransactions", 0, describe(name))
            again = play.ask(f"again: {case}", "InitProducerId", 5, asked)
            for found in (again, answer):
                if found.error_code == 0:
                    known = init(name, 60_000, found.producer_id, found.producer_epoch)
                    play.ask(f"with what was answered: {case}", "InitProducerId", 5, known)
                    break
            play.ask(f"what is known at last: {case}", "DescribeTransactions", 0, describe(name))


@script
def every_version_of_a_fenced_producer(play: Play) -> None:
    coordinator_is_there(play)
    topic = play.topic("t")
    for version in versions("InitProducerId"):
        producer = Producer(play, f"p{version}", tv=1).init().init()
        producer.send(topic)
        stranger = init(producer.transactional_id, 60_000, STRANGER, 1)
        mine = init(producer.transactional_id, 60_000, producer.producer_id, 0)
        play.ask(f"a stranger's id (v{version})", "InitProducerId", version, stranger)
        rest(play, producer.transactional_id)
        play.ask(f"an old epoch (v{version})", "InitProducerId", version, mine)
        rest(play, producer.transactional_id)
        play.ask(f"an old epoch again (v{version})", "InitProducerId", version, mine)
        play.ask(f"the fenced one commits (v{version})", "EndTxn", 4, end_txn(*producer.who, commit=True))


@script
def an_unknown_one_with_an_id(play: Play) -> None:
    """The id and epoch in the request are ignored if nothing is known."""
    coordinator_is_there(play)
    for producer_id, epoch in ((STRANGER, 0), (STRANGER, 5), (STRANGER, 32767), (0, 0), (-2, -2)):
        name = play.name(f"unknown{producer_id}-{epoch}")
        case = f"id {producer_id} and epoch {epoch}"
        asked = init(name, 60_000, producer_id, epoch)
        play.ask(case, "InitProducerId", 5, asked)
        play.ask(f"{case}, again", "InitProducerId", 5, asked)
        play.ask(f"what is known: {case}", "DescribeTransactions", 0, describe(name))
