"""Topics that are used and aren't there: created, each once, while any number wait for it.

Source: AutoTopicCreationManager, whose `inflightTopics` are asked for once. Kafka answers whoever asks meanwhile
UNKNOWN_TOPIC_OR_PARTITION; here they wait, too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from broker.controller.creatable_topic import creatable_topic
from protocol.errors import Error, KafkaError
from protocol.messages.topics import CreatableTopic

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from broker.controller.controller import Withdraw
    from coordinator.commit_waiters import Failed

    Create: TypeAlias = Callable[
        [Sequence[CreatableTopic], "Callable[[Created | KafkaError], None]", Failed], Withdraw | None
    ]

log = logging.getLogger("barnabas.topics")

Created: TypeAlias = list[tuple[CreatableTopic, bytes | KafkaError]]
"""Each topic with its new id, or with what speaks against it."""


class _Waiter:
    """Who waits for some creations."""

    __slots__ = ("_failed", "_left", "_then")

    def __init__(self, creations: int, then: Callable[[], None], failed: Failed) -> None:
        self._left = creations
        self._then = then
        self._failed = failed

    def one_is_over(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._then()

    def one_failed(self, error: BaseException) -> None:
        if self._left > 0:
            self._left = 0
            self._failed(error)


class _Creation:
    """Topics that one decision creates, and who waits for them."""

    __slots__ = ("names", "waiters", "withdraw")

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.waiters: dict[_Waiter, None] = {}
        self.withdraw: Withdraw | None = None


class AutoTopicCreation:
    """Creates what is missing, with the defaults. What can't be created is logged."""

    def __init__(self, config: BrokerConfig, create: Create) -> None:
        self._config = config
        self._create = create
        self._under_way: dict[str, _Creation] = {}

    def create(
        self, names: Sequence[str], then: Callable[[], None], failed: Failed
    ) -> Callable[[], None] | None:
        """`then`, which does no more than take note, is called once each of them is decided and committed, or refused,
        in this call where it can be. `failed` is told of an error of ours, as by `Controller.submit`.

        Returns what is called where nobody waits any more, None where nobody has to: a creation that all have given up
        and that isn't begun is taken back.
        """
        creations: dict[_Creation, None] = {}
        missing: list[str] = []
        for name in names:
            under_way = self._under_way.get(name)
            if under_way is None:
                missing.append(name)
            else:
                creations[under_way] = None
        new = None
        if missing:
            new = _Creation(missing)
            creations[new] = None
        waiter = _Waiter(len(creations), then, failed)
        for creation in creations:
            creation.waiters[waiter] = None
        if new is not None:
            self._begin(new)
        waits_for = [creation for creation in creations if waiter in creation.waiters]
        return partial(self._give_up, waiter, waits_for) if waits_for else None

    def _begin(self, creation: _Creation) -> None:
        def created(outcome: Created | KafkaError) -> None:
            if isinstance(outcome, KafkaError):
                outcome = [(topic, outcome) for topic in wanted]
            for topic, result in outcome:
                if isinstance(result, KafkaError):
                    if result.error is not Error.TOPIC_ALREADY_EXISTS:  # others may have asked for it
                        log.info("topic %s is not created automatically: %s", topic.name, result)
                else:
                    log.info("created topic %s automatically", topic.name)
            for waiter in self._end(creation):
                waiter.one_is_over()

        def failed(error: BaseException) -> None:
            for waiter in self._end(creation):
                waiter.one_failed(error)

        wanted = [creatable_topic(self._config, name) for name in creation.names]
        self._under_way.update(dict.fromkeys(creation.names, creation))
        try:
            creation.withdraw = self._create(wanted, created, failed)
        except Exception:
            self._end(creation)
            raise

    def _end(self, creation: _Creation) -> Sequence[_Waiter]:
        """Nothing of it is under way any more. Returns who waited."""
        for name in creation.names:
            self._under_way.pop(name, None)
        waiters, creation.waiters = [*creation.waiters], {}
        return waiters

    def _give_up(self, waiter: _Waiter, creations: Sequence[_Creation]) -> None:
        for creation in creations:
            creation.waiters.pop(waiter, None)
            if not creation.waiters and creation.withdraw is not None and creation.withdraw():
                self._end(creation)
