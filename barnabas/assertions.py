"""Assertions about the outcome of transactions. If one fails, it tells the story of each wrong record.

broker.assert_exactly_once("orders", "payments", key=lambda record: record.key)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence

from barnabas.looking import SeenRecord, WithLooking, visible

Key = Callable[[SeenRecord], Hashable]

MOST_TOLD = 10
"""The most records or transactions whose story an assertion tells."""


def own_key(record: SeenRecord) -> Hashable:
    """Return the record's key, or its value if it has no key."""
    return record.value if record.key is None else record.key


class WithAssertions(WithLooking):
    """Assertions for tests of exactly once, about a broker or a cluster. Each raises AssertionError."""

    def assert_exactly_once(
        self,
        inputs: str | Iterable[Hashable],
        outputs: str | Sequence[str],
        *,
        key: Key = own_key,
        output_key: Key | None = None,
    ) -> None:
        """Each committed record of the topic `inputs` has exactly one committed record in `outputs`, one topic or
        several, and there are no others. Records belong together if `key` (for outputs `output_key`) returns the same
        for both. `inputs` may also be the keys themselves."""
        expected = Counter(map(key, self.records(inputs))) if isinstance(inputs, str) else Counter(inputs)
        key_of = output_key or key
        seen: dict[Hashable, list[SeenRecord]] = {}
        came: Counter[Hashable] = Counter()
        for topic in [outputs] if isinstance(outputs, str) else outputs:
            written, stable = self._read(topic)
            places = {each.place for each in visible(written, stable)}
            for each in written:
                seen.setdefault(key_of(each), []).append(each)
                came[key_of(each)] += each.place in places
        told = [
            _told(what, key, seen.get(key, ()), count, came[key])
            for key, count in expected.items()
            if (what := _wrong(count, came[key]))
        ]
        added = {key: count for key, count in came.items() if count and key not in expected}
        told += [_told("added", key, seen[key], 0, count) for key, count in added.items()]
        if told:
            raise AssertionError(
                _all_told(f"not exactly once ({len(expected)} expected, {len(told)} wrong)", told)
            )

    def assert_committed(self, topic: str, values: Iterable[bytes | str | None]) -> None:
        """Each of these values is committed in the topic exactly as often as it is given. Other values may be there."""
        expected = Counter(each.encode() if isinstance(each, str) else each for each in values)
        written, stable = self._read(topic)
        places = {each.place for each in visible(written, stable)}
        seen: dict[bytes | None, list[SeenRecord]] = {}
        for each in written:
            seen.setdefault(each.value, []).append(each)
        told = []
        for value, count in expected.items():
            found = seen.get(value, ())
            came = sum(each.place in places for each in found)
            what = _wrong(count, came)
            if what:
                told.append(_told(what, value, found, count, came))
        if told:
            raise AssertionError(
                _all_told(f"{len(told)} values are not committed in {topic} as wanted", told)
            )

    def assert_no_hanging_transactions(self) -> None:
        """No partition has an open transaction that no coordinator will ever end. Other open ones are fine."""
        hanging = [f"hangs: {each}" for each in self.hanging_transactions()]
        if hanging:
            raise AssertionError(_all_told("readers of committed records wait for ever", hanging))


def _wrong(count: int, came: int) -> str:
    return "lost" if came < count else "doubled" if came > count else ""


def _told(what: str, key: Hashable, records: Sequence[SeenRecord], count: int, came: int) -> str:
    stories = [f"\n    {each.story}" for each in records[:MOST_TOLD]]
    if not records:
        stories = ["\n    no record of it was ever written"]
    elif len(records) > MOST_TOLD:
        stories.append(f"\n    and {len(records) - MOST_TOLD} more")
    return (
        f"{what}: {key!r} is committed {came} time{'' if came == 1 else 's'}, not {count}{''.join(stories)}"
    )


def _all_told(what: str, told: Sequence[str]) -> str:
    more = [f"and {len(told) - MOST_TOLD} more"] if len(told) > MOST_TOLD else []
    return "\n  ".join([f"{what}:", *told[:MOST_TOLD], *more])
