"""Subscriptions by regular expression, resolved by the server (KIP-848)."""

from __future__ import annotations

from typing import Any

from ..consumer_requests import beat, describe, first_beat, records_of
from ..group_requests import coordinator_is_there
from ..play import Play, script


def joining(group: str, member: str, regex: str | None, *names: str, **more: Any) -> dict[str, Any]:
    return first_beat(group, member, *names, subscribed_topic_regex=regex, **more)


@script(properties="consumers")
def expressions(play: Play) -> None:
    """Which expressions are accepted, and what is wrong with the others."""
    group = play.name("g")
    coordinator_is_there(play, group)
    for number, regex in enumerate(
        (
            "a(b", "a)b", "[", "[a", "[]", "[^]", "a**", "a*+", "a*?", "a???", "*a", "|*", "(*)", "a{2}{3}",
            "a{1001}", "a{2,1}", "a{,3}", "a{1,", "(a{100}){100}", "((a{10}){10}){10}", "(?=a)", "(?!a)",
            "(?<=a)", "(?<name>a)", "(?P<name>a)", "(?P<name>a)(?P<name>b)", "(?P<>a)", "(?P<n-m>a)",
            "(?P=name)", "(?i)a", "(?i:a)", "(?x)a", "(?", "(?i", "(?-)", "(?i-)a", "(?^a)", "\\", "\\1",
            "\\12", "\\08", "\\x", "\\x4", "\\x41", "\\x{41}", "\\x{}", "\\x{110000}", "\\d\\w\\s",
            "\\D\\W\\S", "\\b\\B\\A\\z", "\\Z", "\\C", "\\Qa.b\\E", "\\Qa", "\\e", "\\p{Greek}", "\\pL",
            "\\p{L}", "\\p{Nope}", "\\p", "\\p{^L}", "\\PN", "[[:alpha:]]", "[[:^alpha:]]", "[[:nope:]]",
            "[a-\\d]", "[b-a]", "[a-b-c]", "[\\d-z]", "[\\pL]", "[\\Q]\\E]", "a|b|", "()", "(|a)", "^*",
            "$+", "\\_", "\\-", "\\é", "é+", "a\x00", "(?s).", "(?U)a+", "(?m)^a$", "x{0}", "x{0,0}",
            "(x{0,1000}){2}", "{2}", "a{b}", "a{-1}", "a{01}", "]", "}", "(((((((((a)))))))))",
        )
    ):  # fmt: skip
        fields = joining(group, f"m{number % 3}", regex)
        answer = play.quietly("ConsumerGroupHeartbeat", 1, fields)
        play.note(f"{number}: {regex!r}", [answer.error_code, answer.error_message])


@script(properties="consumers")
def life(play: Play) -> None:
    topic = play.topic("t1", partitions=3)
    group = play.name("g")
    coordinator_is_there(play, group)
    one = f"{play.name('t')}\\d"

    def ask(case: str, fields: dict[str, Any]) -> Any:
        return play.ask(case, "ConsumerGroupHeartbeat", 1, fields)

    def until_epoch(case: str, member: str, epoch: int, wanted: int) -> None:
        play.ask_until(
            case,
            lambda answer: answer.member_epoch == wanted,
            "ConsumerGroupHeartbeat",
            1,
            beat(group, member, epoch),
        )

    ask("one joins", joining(group, "one", one))
    until_epoch("it is resolved", "one", 1, 2)
    describe(play, "with topics", group)
    ask("the same again", beat(group, "one", 2, subscribed_topic_regex=one))
    ask("a second member with the same", joining(group, "two", one))
    describe(play, "two members", group)
    ask("one gives up its expression", beat(group, "one", 2, subscribed_topic_regex="", owned=()))
    describe(play, "one without it", group)
    ask("one subscribes by name", beat(group, "one", 4, names=[topic.name], owned=()))
    ask("two leaves", beat(group, "two", -1))
    describe(play, "one alone", group)
    ask("one lives", beat(group, "one", 5, owned=()))
    ask("an expression that makes no sense", beat(group, "one", 6, subscribed_topic_regex="("))
    play.note("records", records_of(play, group, topic))
