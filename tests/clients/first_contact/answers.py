"""The errors that clients got, by the lines of the log of requests."""

from __future__ import annotations

import re
from typing import NamedTuple

from protocol.errors import Error
from tests.support.first_contact import MET_BY_WAITING

_LINE = re.compile(
    r" client (?P<client>.*?): (?P<api>\w+) v\d+ .*: (?P<errors>[A-Z_]+ \(\d+\).*), [\d.]+ ms$"
)
_IN_VAIN = re.compile(r" client .*?: (\w+) v\d+ waited in vain, [\d.]+ ms$")
_ERROR = re.compile(r"([A-Z_]+) \(\d+\)")
_NODE = re.compile(r"raft-client-\d+|broker-\d+-fetcher-\d+")


class Allowed(NamedTuple):
    """An error that a client may get."""

    api: str
    error: Error
    asked: re.Pattern[str]
    reason: str

    def is_met(self, api: str, error: Error, line: str) -> bool:
        return (api, error) == (self.api, self.error) and self.asked.search(line) is not None


ALLOWED = (
    Allowed(
        "Metadata",
        Error.LEADER_NOT_AVAILABLE,
        re.compile(r"topics=\["),
        "A topic that Metadata creates: kafka-go takes the topic itself, or UNKNOWN_TOPIC_OR_PARTITION, for something "
        "else (GAPS.md). Clients ask again after their backoff of 100 ms, as with Kafka.",
    ),
    Allowed(
        "Metadata",
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        re.compile(r"-repartition\}.* allow_auto_topic_creation=False"),
        "A Streams application asks for a topic of its own before the first heartbeat of its group, by which that is "
        "made. With Kafka, too.",
    ),
    Allowed(
        "AddPartitionsToTxn",
        Error.CONCURRENT_TRANSACTIONS,
        re.compile(r" AddPartitionsToTxn v\d "),
        "A transaction that begins right behind the answer to a commit, whose markers are on their way to other nodes. "
        "Clients ask again after some milliseconds, as with Kafka.",
    ),
)


def met_by_waiting(log: str) -> dict[str, list[str]]:
    """The lines of answers with errors that a client meets by waiting, by API and error, but for those allowed; and of
    requests that have waited for as long as they may, whatever they were answered then.

    What nodes are told who follow each other's logs has no client waiting for it.
    """
    found: dict[str, list[str]] = {}
    for line in log.splitlines():
        in_vain = _IN_VAIN.search(line)
        if in_vain is not None:
            found.setdefault(f"{in_vain[1]} in vain", []).append(line)
        match = _LINE.search(line)
        if match is None or _NODE.fullmatch(match["client"]):
            continue
        api = match["api"]
        for name in _ERROR.findall(match["errors"]):
            error = Error[name]
            if error in MET_BY_WAITING and not any(each.is_met(api, error, line) for each in ALLOWED):
                found.setdefault(f"{api} {name}", []).append(line)
    return found


def answered(log: str) -> set[str]:
    """The APIs that were requested."""
    return set(re.findall(r" barnabas\.request: .*? client .*?: (\w+) v\d+ ", log))
