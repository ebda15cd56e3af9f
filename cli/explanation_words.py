"""An explanation of waiting readers: in words for a person, and as a document for programs."""

from __future__ import annotations

from typing import Any

from broker.process.printable import printable
from cli.client.transactions import NEVER_MS, CoordinatedTransaction
from cli.explaining import (
    ENDING,
    HANGING,
    LARGEST_TIMEOUT_MS,
    OPEN,
    Blocker,
    Explanation,
    Tail,
    WaitingPartition,
)
from cli.pasting import in_shell, option_in_shell
from cli.wording import moment, number_of, span


def told_in_words(found: Explanation, where: str, now_ms: int) -> str:
    """Return a paragraph for each partition whose readers wait, with what ends the wait. `where` are a command's
    options that say which Kafka is meant."""
    paragraphs = [_waiting(each, where, now_ms) for each in found.waiting]
    if not found.waiting:
        of = number_of(found.looked_at, "partition")
        paragraphs.append(f"Nobody waits for a transaction: of {of} none has one open before its end.")
    if found.tails:
        paragraphs.append("\n".join(_tail(each) for each in found.tails))
    if found.without_leader:
        names = ", ".join(_name(*each) for each in found.without_leader)
        paragraphs.append(f"Without a leader, so nobody can read them or know more: {names}.")
    return "\n\n".join(paragraphs)


def end_of(one: Blocker, where: str) -> str | None:
    """Return the command that ends it, or None if none is needed."""
    if one.verdict == HANGING:
        topic, index = one.open.partition
        return (
            f"barnabas transactions abort {option_in_shell('--topic', topic)} --partition {index}"
            f" --start-offset {one.open.start_offset}{where}"
        )
    if one.verdict == OPEN and one.coordinated is not None:
        return (
            f"barnabas transactions abort {option_in_shell('--id', one.coordinated.transactional_id)}{where}"
        )
    return None


def _waiting(each: WaitingPartition, where: str, now_ms: int) -> str:
    since_ms = _since_ms(each)
    since = "" if since_ms is None else f", since {moment(since_ms)} ({span(now_ms - since_ms)})"
    lines = [
        f"{_name(*each.partition)}: readers of committed records wait at offset {each.stable:,}"
        f" (of {each.end:,}){since}.",
        f"  {_behind(each)}",
    ]
    if not each.blockers:
        lines += [
            "  No transaction is open there: one has ended, and the replicas in sync don't have its marker yet.",
            f"    Bring back those that lag: barnabas topics {in_shell(each.partition[0])}{where}",
        ]
    for number, one in enumerate(each.blockers):
        lines += [f"  {'Then they wait for' if number else 'They wait for'} {_who(one)}"]
        details = [_where_open(one, each.counted.is_exact), _until(one, now_ms), *_ending(one, where, now_ms)]
        lines += [f"    {line}" for line in details if line]
    return "\n".join(lines)


def _behind(each: WaitingPartition) -> str:
    """Return how many records wait, and what becomes of them."""
    counted = each.counted
    undecided = sum(counted.undecided.values())
    exact = counted.is_exact
    records = number_of(counted.waiting, "record", is_exact=exact)
    parts = [f"{records} that they get once no transaction is open before them"]
    if undecided:
        parts.append(f"{number_of(undecided, 'record', is_exact=exact)} of open transactions")
    if counted.aborted:
        parts.append(
            f"{number_of(counted.aborted, 'record', is_exact=exact)} of aborted ones, which nobody gets"
        )
    return f"Behind it, in {number_of(each.end - each.stable, 'offset')}: {_listed(parts)}."


def _who(one: Blocker) -> str:
    known = one.coordinated
    if known is None:
        return f"a transaction of producer id {one.open.producer_id}, whose transactional id isn't known."
    since = f", in a transaction since {moment(known.started_ms)}" if known.started_ms is not None else ""
    return f"transactional id {printable(known.transactional_id)}: {printable(known.state)}{since}."


def _where_open(one: Blocker, is_exact: bool) -> str:
    known = one.coordinated
    parts = [f"producer id {one.open.producer_id}, epoch {one.open.producer_epoch}"]
    if known is not None:
        if known.producer_epoch != one.open.producer_epoch:
            parts.append(f"its coordinator is at epoch {known.producer_epoch}")
        parts.append(f"coordinator: broker {known.coordinator}")
    records = number_of(one.records, "record", is_exact=is_exact)
    last = moment(one.open.last_timestamp_ms)
    parts.append(f"open from offset {one.open.start_offset:,} on with {records}, the last of {last}")
    return f"{'; '.join(parts)}."


def _until(one: Blocker, now_ms: int) -> str:
    """Return what happens without any action."""
    if one.may_be_hidden(now_ms):
        return f"It seems to hang: {printable(one.why)}. Its last record is young, so it may belong to another user."
    if one.verdict == HANGING:
        return f"It hangs: {printable(one.why)}. No broker will ever end it."
    if one.verdict == ENDING:
        return "It is being ended: the outcome is certain, and its markers are on their way."
    if one.coordinated is None:
        return f"It is unknown whether it hangs: {one.why}."
    return _timeout(one.coordinated, now_ms)


def _timeout(known: CoordinatedTransaction, now_ms: int) -> str:
    if known.timeout_ms >= NEVER_MS:
        return "No timeout ends it: it is part of a two-phase commit."
    if known.ends_ms is None:
        return ""
    if known.ends_ms <= now_ms:
        was_up = f"Its time ({span(known.timeout_ms)}) was up at {moment(known.ends_ms)}"
        return f"{was_up}: the broker is about to abort it."
    left = span(known.ends_ms - now_ms)
    return (
        f"If its application doesn't end it, the broker aborts it at {moment(known.ends_ms)}, in {left}"
        f" (timeout: {span(known.timeout_ms)})."
    )


def _ending(one: Blocker, where: str, now_ms: int) -> list[str]:
    command = end_of(one, where)
    if one.verdict == OPEN and one.coordinated is not None:
        name = printable(one.coordinated.transactional_id)
        return [
            f"To end it now: stop or restart the application whose transactional.id is {name}, or",
            f"  {command}",
        ]
    if one.may_be_hidden(now_ms):
        old_ms = one.open.last_timestamp_ms + LARGEST_TIMEOUT_MS
        return [
            f"To end it, if it is still there at {moment(old_ms)} (or, being sure, with --force):",
            f"  {command}",
        ]
    if one.verdict == HANGING:
        return ["To end it:", f"  {command}"]
    if one.verdict == ENDING and one.coordinated is not None:
        node = one.coordinated.coordinator
        return [f"You needn't do anything. If it stays like this, restart broker {node}, its coordinator."]
    return ["To find out: bring back the missing brokers, and ask again."]


def _tail(each: Tail) -> str:
    """Say that a reader has everything although its position is lower than the end."""
    name = _name(*each.partition)
    offsets = number_of(each.offsets, "offset", is_exact=each.is_all)
    last = "the last offset holds" if offsets == "1 offset" else f"the last {offsets} hold"
    return (
        f"{name}: {last} no record for readers of committed ones, only markers or records of aborted"
        " transactions. Nobody waits there, whatever the difference of offsets says."
    )


def _since_ms(each: WaitingPartition) -> int | None:
    if not each.blockers:
        return None
    one = each.blockers[0]
    if one.verdict != HANGING and one.coordinated is not None and one.coordinated.started_ms is not None:
        return one.coordinated.started_ms
    return one.open.last_timestamp_ms


def _name(topic: str, index: int) -> str:
    return f"{printable(topic)}-{index}"


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def as_document(found: Explanation, where: str, now_ms: int) -> dict[str, Any]:
    """Return the explanation for programs: times in ms since 1970, offsets and counts as numbers."""
    return {
        "at_ms": now_ms,
        "waiting": [_waiting_document(each, where) for each in found.waiting],
        "nothing_for_readers": [
            {
                "topic": each.partition[0],
                "partition": each.partition[1],
                "last_offsets": each.offsets,
                "exact": each.is_all,
            }
            for each in found.tails
        ],
        "without_leader": [{"topic": topic, "partition": index} for topic, index in found.without_leader],
        "partitions": found.looked_at,
    }


def _waiting_document(each: WaitingPartition, where: str) -> dict[str, Any]:
    counted = each.counted
    return {
        "topic": each.partition[0],
        "partition": each.partition[1],
        "leader": each.leader,
        "last_stable_offset": each.stable,
        "high_watermark": each.end,
        "offsets": each.end - each.stable,
        "since_ms": _since_ms(each),
        "records_waiting": counted.waiting,
        "records_open": sum(counted.undecided.values()),
        "records_aborted": counted.aborted,
        "markers": counted.markers,
        "exact": counted.is_exact,
        "transactions": [_blocker_document(one, where) for one in each.blockers],
    }


def _blocker_document(one: Blocker, where: str) -> dict[str, Any]:
    known = one.coordinated
    return {
        "producer_id": one.open.producer_id,
        "producer_epoch": one.open.producer_epoch,
        "start_offset": one.open.start_offset,
        "coordinator_epoch": one.open.coordinator_epoch,
        "last_timestamp_ms": one.open.last_timestamp_ms,
        "records": one.records,
        "verdict": one.verdict,
        "why": one.why,
        "transactional_id": known.transactional_id if known else None,
        "state": known.state if known else None,
        "coordinator": known.coordinator if known else None,
        "started_ms": known.started_ms if known else None,
        "timeout_ms": known.timeout_ms if known else None,
        "ends_ms": known.ends_ms if known and one.verdict == OPEN else None,
        "end_with": end_of(one, where),
    }
