"""The internal topics of streams applications: the broker creates them after a heartbeat that finds
them missing.

The heartbeat doesn't wait: the application hears of the topics, or of errors, by its next heartbeats. A topic isn't
requested again before the controller has answered, and not for a while after it was refused.
Source: `AutoTopicCreationManager` (createStreamsInternalTopics), `ExpiringErrorCache`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from protocol.errors import KafkaError

if TYPE_CHECKING:
    from broker.controller.topic_requests import Create
    from broker.environment.scheduler import Clock
    from protocol.messages.topics import CreatableTopic
    from protocol.waiting import Waiting

log = logging.getLogger("barnabas.topics")

MOST_REFUSALS = 1_000
"""Topics whose refusals are remembered; the oldest go first."""
MOST_SHOWN = 10
"""Topics created or refused together that a line of the log names. Else clients could fill the log."""
MOST_UNDER_WAY = 10_000
"""Topics that are being created at a time. A later heartbeat requests the rest."""


class _Refusal(NamedTuple):
    text: str
    until_ms: int


class InternalTopics:
    """Has the controller create internal topics."""

    def __init__(self, create: Create, clock: Clock, begin: Callable[[Waiting[None]], object]) -> None:
        """`begin` takes steps without waiting for them."""
        self._create = create
        self._clock = clock
        self._begin = begin
        self._under_way: set[str] = set()
        self._refusals: dict[str, _Refusal] = {}

    def refusals_of(self, names: Iterable[str]) -> list[tuple[str, str]]:
        """(name, reason) of each of these topics that was refused lately."""
        now_ms = self._clock.now_ms()
        found = [(name, self._refusals.get(name)) for name in names]
        return [
            (name, refusal.text)
            for name, refusal in found
            if refusal is not None and refusal.until_ms > now_ms
        ]

    def create(self, topics: Mapping[str, CreatableTopic], remember_ms: int) -> None:
        """Begin to create topics. Refusals are remembered for `remember_ms`."""
        refused = {name for name, _ in self.refusals_of(topics)}
        wanted = [
            topic for name, topic in topics.items() if name not in refused and name not in self._under_way
        ]
        wanted = wanted[: max(MOST_UNDER_WAY - len(self._under_way), 0)]
        if not wanted:
            return
        self._under_way.update(topic.name for topic in wanted)
        self._begin(self._make(wanted, remember_ms))

    async def _make(self, topics: Sequence[CreatableTopic], remember_ms: int) -> None:
        try:
            outcome = await self._create(topics)
        finally:
            self._under_way.difference_update(topic.name for topic in topics)
        if isinstance(outcome, KafkaError):
            outcome = [(topic, outcome) for topic in topics]
        made, refused = [], []
        for topic, result in outcome:
            if isinstance(result, KafkaError):
                refused.append(f"{topic.name} ({result})")
                self._remember(topic.name, result.message or result.error.name, remember_ms)
            else:
                made.append(topic.name)
        if made:
            log.info("created the internal topics %s", _shown(made))
        if refused:
            log.info("internal topics that can't be created: %s", _shown(refused))
        self._forget_oldest()

    def _remember(self, name: str, text: str, remember_ms: int) -> None:
        self._refusals[name] = _Refusal(text, self._clock.now_ms() + remember_ms)

    def _forget_oldest(self) -> None:
        """Forget the refusals beyond the limit, once for all that come together: there may be thousands."""
        over = len(self._refusals) - MOST_REFUSALS
        if over > 0:
            by_end = sorted(self._refusals.items(), key=lambda each: each[1].until_ms)
            for name, _ in by_end[:over]:
                del self._refusals[name]


def _shown(names: Sequence[str]) -> str:
    shown = ", ".join(names[:MOST_SHOWN])
    return shown if len(names) <= MOST_SHOWN else f"{shown} and {len(names) - MOST_SHOWN} more"
