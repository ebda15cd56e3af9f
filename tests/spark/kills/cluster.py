"""Three brokers that are killed in turn, one at a time, while leaders move: away from it, and back once it is there."""

from __future__ import annotations

import itertools
from types import TracebackType
from typing import Self

from confluent_kafka import ElectionType
from confluent_kafka.admin import AdminClient

import barnabas
from tests.support.waiting import until_answered

PATIENCE_S = 120.0
SETTINGS = {"broker.session.timeout.ms": 2_000, "broker.heartbeat.interval.ms": 300}


class OneOfThree:
    """As a broker to who kills it: `kill` ends the next of the three, `start` brings it back."""

    def __init__(self) -> None:
        self._cluster = barnabas.Cluster(brokers=3, config=SETTINGS)
        self._next = itertools.cycle((1, 2, 3))
        self._killed = 0

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    def kill(self) -> None:
        self._killed = next(self._next)
        self._cluster[self._killed].kill()

    def start(self) -> object:
        """Returns once it has all again, and leads what it led first."""
        self._cluster[self._killed].start()
        self._cluster.wait_until_in_sync(PATIENCE_S)
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        until_answered(
            lambda: admin.elect_leaders(ElectionType.PREFERRED).result(PATIENCE_S), "leaders are elected"
        )
        return self

    def __enter__(self) -> Self:
        self._cluster.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cluster.stop()
