"""The conditions at the end: every input is in the output exactly once, and every transaction is whole or absent."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Output:
    """A record of the output. place: "topic-partition @ offset"."""

    input: int
    square: int
    transaction: str
    place: str


def find(
    inputs: Mapping[int, str],
    committed: Sequence[Output],
    written: Iterable[Output],
    acknowledged: Collection[str],
) -> dict[str, list[str]]:
    """Return the mistakes as sentences by kind, or {} if there are none.

    inputs: number → where it lies. committed: what a reader of committed records sees; written: what one of
    uncommitted records sees. acknowledged: transactions whose commit was answered.
    """
    found: dict[str, list[str]] = defaultdict(list)
    by_input: dict[int, list[Output]] = defaultdict(list)
    tries: dict[int, list[Output]] = defaultdict(list)
    for output in committed:
        by_input[output.input].append(output)
    for output in written:
        tries[output.input].append(output)

    for number, place in inputs.items():
        if number not in by_input:
            tried = ", ".join(
                f"{output.transaction} ({'acknowledged' if output.transaction in acknowledged else 'aborted'})"
                for output in tries[number]
            )
            found["missing"].append(f"input {number} ({place}) was written by {tried or 'no transaction'}")
    for number, outputs in by_input.items():
        where = " and ".join(f"{output.transaction} ({output.place})" for output in outputs)
        if number not in inputs:
            found["invented"].append(f"input {number}, of {where}, was never sent")
        if len(outputs) > 1:
            found["doubled"].append(f"input {number} ({inputs.get(number)}) is committed by {where}")
        for output in outputs:
            if output.square != number * number:
                found["wrong"].append(f"input {number} became {output.square} in {where}")

    sizes = Counter(output.transaction for outputs in tries.values() for output in outputs)
    visible = Counter(output.transaction for output in committed)
    for transaction, size in sizes.items():
        if 0 < visible[transaction] < size:
            found["torn"].append(f"{transaction} wrote {size} records, {visible[transaction]} can be read")
        if transaction in acknowledged and not visible[transaction]:
            found["lost"].append(f"{transaction}, of {size} records, was acknowledged and can't be read")
    return dict(found)
