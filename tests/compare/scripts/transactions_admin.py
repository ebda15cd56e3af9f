"""The requests that describe transactions: DescribeTransactions, ListTransactions, and finding the coordinator."""

from __future__ import annotations

from typing import Any

from ..group_requests import coordinator_is_there as group_coordinator_is_there
from ..play import Play, script, versions
from ..transaction_requests import (
    STRANGER,
    Producer,
    coordinator_is_there,
    describe,
    init,
    rest,
)

STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)


def listed(
    *states: str, producer_ids: tuple[int, ...] = (), duration_ms: int = -1, pattern: str | None = None
) -> dict[str, Any]:
    return {
        "state_filters": list(states),
        "producer_id_filters": list(producer_ids),
        "duration_filter": duration_ms,
        "transactional_id_pattern": pattern,
    }


def one_in_each_state(play: Play) -> dict[str, Producer]:
    topic = play.topic("t", 3)
    empty, ongoing, older, committed, aborted = (
        Producer(play, name, tv=tv).init()
        for name, tv in (("empty", 2), ("ongoing", 2), ("older", 1), ("committed", 2), ("aborted", 1))
    )
    ongoing.send(topic, 2)
    ongoing.send(topic, 0)
    ongoing.commit_offsets(play.name("g"), (topic, 0, 1))
    older.send(topic, 1)
    committed.send(topic)
    committed.end()
    aborted.send(topic)
    aborted.end(commit=False)
    return {each.suffix: each for each in (empty, ongoing, older, committed, aborted)}


@script
def describing(play: Play) -> None:
    coordinator_is_there(play)
    group_coordinator_is_there(play, play.name("g"))
    all_of_them = one_in_each_state(play)
    names = [producer.transactional_id for producer in all_of_them.values()]
    for name in names:
        play.ask(f"{name}", "DescribeTransactions", 0, describe(name))
    for case, asked in {
        "all": names,
        "some and strangers": [names[1], play.name("unknown"), "", names[0]],
        "one twice": [names[2], names[2]],
        "none": [],
        "no id": [""],
        "an unknown one": [play.name("unknown")],
    }.items():
        play.ask(case, "DescribeTransactions", 0, describe(*asked))
    ongoing = all_of_them["ongoing"]
    play.quietly("InitProducerId", 5, init(ongoing.transactional_id, 1_234))
    rest(play, ongoing.transactional_id)
    play.ask("after a fence", "DescribeTransactions", 0, describe(ongoing.transactional_id))


@script
def listing(play: Play) -> None:
    coordinator_is_there(play)
    group_coordinator_is_there(play, play.name("g"))
    producers = one_in_each_state(play)
    ongoing, older, empty = (producers[name].producer_id for name in ("ongoing", "older", "empty"))
    for version in versions("ListTransactions"):
        for case, asked in {
            "all": listed(),
            **{f"state {state}": listed(state) for state in STATES},
            "two states": listed("Ongoing", "Empty"),
            "a state twice": listed("Ongoing", "Ongoing"),
            "an unknown state": listed("Unknown"),
            "unknown states": listed("ongoing", "ONGOING", "", "ongoing"),
            "a known state and an unknown one": listed("Nothing", "CompleteCommit"),
            "a producer id": listed(producer_ids=(ongoing,)),
            "two producer ids": listed(producer_ids=(older, empty)),
            "an unknown producer id": listed(producer_ids=(STRANGER,)),
            "a producer id in another state": listed("Empty", producer_ids=(ongoing,)),
            "a producer id in its state": listed("Ongoing", producer_ids=(ongoing,)),
            "an unknown state and a producer id": listed("Nothing", producer_ids=(ongoing,)),
        }.items():
            play.ask(f"{case} (v{version})", "ListTransactions", version, asked)
    play.tick()
    for version in (1, 2):
        for duration_ms in (0, 1, 3_600_000, 2**63 - 1, -1, -2, -(2**63)):
            asked = listed(duration_ms=duration_ms)
            play.ask(f"duration {duration_ms} (v{version})", "ListTransactions", version, asked)
        asked = listed("Ongoing", duration_ms=0)
        play.ask(f"duration and state (v{version})", "ListTransactions", version, asked)
    begin = play.prefix
    for case, pattern in {
        "the empty pattern": "",
        "anything": ".*",
        "the whole id": f"{begin}ongoing",
        "a part of the id": "ongoing",
        "the beginning": f"{begin}o",
        "beginnings": f"{begin}o.*",
        "an end": ".*ted",
        "alternatives": f"{begin}(empty|older)",
        "alternatives, the shorter one first": f"{begin}(old|older)",
        "anchors": f"^{begin}empty$",
        "a class of letters": f"{begin}[a-e]+",
        "other letters": f"{begin.upper()}EMPTY",
        "other letters, if told": f"(?i){begin.upper()}EMPTY",
        "a possessive quantifier": f"{begin}e.*+",
        "a look-ahead": f"{begin}(?=o).*",
        "a property of letters": begin.replace("-", r"\p{Punct}") + r"\p{Lower}+",
        "quoted": rf"\Q{begin}\Eempty",
        "a bad pattern": "(",
        "another bad pattern": "*a",
        "a bad class": "[a",
        "a bad escape": "\\",
        "an unknown escape": r"\y",
        "a space": " ",
    }.items():
        play.ask(case, "ListTransactions", 2, listed(pattern=pattern))
    for case, asked in {
        "a bad pattern and an unknown state": listed("Nothing", pattern="("),
        "a pattern and a state": listed("Empty", pattern=f"{begin}.*"),
        "a pattern and a producer id": listed(producer_ids=(older,), pattern=f"{begin}o.*"),
        "everything": listed("Ongoing", producer_ids=(older,), duration_ms=0, pattern=f"{begin}o.*"),
    }.items():
        play.ask(case, "ListTransactions", 2, asked)


@script
def patterns(play: Play) -> None:
    """An id may contain any character; the pattern is RE2/J's."""
    coordinator_is_there(play)
    of_topic_names = ("a", "A", "k", "S", "7", "_", ".", "a-b", "a.b")
    of_others = ("ü", "Ü", "ß", "\U0001d11e", "я", "a b", "a\nb", "ſ", "\u212a", "\t", "\u0301")
    for suffix in (*of_topic_names, *of_others):
        Producer(play, suffix).init()
    begin = rf"\Q{play.prefix}\E"
    for pattern in (
        *(
            ".",
            "..",
            "...",
            "ü",
            "Ü",
            "(?i)ü",
            "(?i)a",
            "(?i)s",
            "(?i)k",
            "(?i)я",
            "(?s)a.b",
            "a.b",
            "[^a]",
            "[a-z]",
        ),
        *(
            r"\pL",
            r"\p{L}",
            r"\p{Lu}",
            r"\PL",
            r"\p{Greek}",
            r"\p{Cyrillic}",
            r"\p{So}",
            r"[\pL\d]",
            r"\w",
            r"\W",
        ),
        *(r"\d", r"\D", r"\s", r"\S", "[[:alpha:]]", "[[:^alpha:]]", "[[:punct:]]", r"\x{fc}", r"\x{1d11e}"),
        *(
            r"\xfc",
            r"\u00fc",
            "[ü-я]",
            "[\U0001d11e-\U0001d11f]",
            "a|ü",
            r"\C",
            r"\bü",
            r"a\b",
            r"(?m)a$\nb",
            r"(?ms)a$.^b",
            r"(?s).*",
            r".\s.",
            r"(?i)ß",
            r"(?i)\p{Lu}",
            r"\p{Latin}",
            r"\p{Common}",
            r"\pM",
            r"a\Z",
        ),
    ):
        play.ask(f"{pattern!r}", "ListTransactions", 2, listed(pattern=begin + pattern))


@script
def finding(play: Play) -> None:
    coordinator_is_there(play)
    name = play.name("p")
    for version in versions("FindCoordinator"):
        if version < 4:
            for case, key in {"an id": name, "the empty id": "", "another": "ü"}.items():
                asked: dict[str, Any] = {"key": key, "key_type": 1}
                if version > 0:
                    play.ask(f"{case} (v{version})", "FindCoordinator", version, asked)
        else:
            asked = {"key_type": 1, "coordinator_keys": [name, "", "ü", "\U0001f600", name]}
            play.ask(f"several ids (v{version})", "FindCoordinator", version, asked)
            asked["coordinator_keys"] = []
            play.ask(f"no ids (v{version})", "FindCoordinator", version, asked)
