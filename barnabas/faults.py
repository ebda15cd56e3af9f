"""Faults: what goes wrong with which of a broker's requests, armed by a test.

    with broker.fault("EndTxn", "drop", at="answer", transactional_id="payer") as fault:
        ...
    # it fired, or the test fails here

`broker.faults.faults` (in the broker's process) says what there is.
"""

from __future__ import annotations

import abc
import time
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from barnabas.child import BrokerError, QuestionRefusedError

if TYPE_CHECKING:
    from barnabas.rights import Asked

POLL_S = 0.005


class FaultNeverFiredError(AssertionError):
    """A fault was armed for a test in which nothing of its kind happened: it shows something else than it seems to."""


CRASH = "crash"
_CRASHED: Mapping[str, int] = {"seen": 1, "fired": 1, "standing": 0}
"""Nobody is left to say it."""


class Fault:
    """One that is armed, at one broker or at several. As a context manager it is disarmed at the end, and has to have
    fired by then."""

    def __init__(self, nodes: Sequence[Asked], said: Mapping[str, Any], *, may_not_fire: bool) -> None:
        """Raises ValueError for what there is not."""
        self._said = said
        self._may_not_fire = may_not_fire
        self._armed: list[tuple[Asked, int]] = []
        self._last: list[Mapping[str, int]] = []
        try:
            for node in nodes:
                self._armed.append((node, node.ask({"ask": "arm_fault", "fault": said})))
        except QuestionRefusedError as refusal:
            self.disarm()
            raise ValueError(str(refusal)) from None

    def __repr__(self) -> str:
        words = [f"{name}={value!r}" for name, value in self._said.items()]
        return f"<fault {', '.join(words)}>"

    @property
    def seen(self) -> int:
        """How many requests, or markers, so far were those that it is about."""
        return self._sum("seen")

    @property
    def fired(self) -> int:
        """On how many of them it was carried out."""
        return self._sum("fired")

    @property
    def standing(self) -> int:
        """How many it holds now."""
        return self._sum("standing")

    def _sum(self, what: str) -> int:
        return sum(state[what] for state in (*self._last, *self._states()))

    def _states(self) -> Iterable[Mapping[str, int]]:
        for node, number in self._armed:
            try:
                yield node.ask({"ask": "fault", "number": number})
            except (QuestionRefusedError, BrokerError):  # it was restarted, or is gone: so is the fault
                if self._said["do"] == CRASH:
                    yield _CRASHED

    def reached(self, count: int = 1, timeout: float = 30.0) -> Self:
        """Wait until it holds so many requests. Raises TimeoutError."""
        return self._until("standing", count, timeout)

    def wait_until_fired(self, count: int = 1, timeout: float = 30.0) -> Self:
        """Wait until it was carried out on so many requests. Raises TimeoutError."""
        return self._until("fired", count, timeout)

    def _until(self, what: str, count: int, timeout: float) -> Self:
        deadline_s = time.monotonic() + timeout
        while self._sum(what) < count:
            if time.monotonic() > deadline_s:
                raise TimeoutError(
                    f"{self!r}: within {timeout:g} s it saw {self.seen} of what it is about, fired on {self.fired}, "
                    f"and holds {self.standing}"
                )
            time.sleep(POLL_S)
        return self

    @property
    def has_to_fire(self) -> bool:
        """It hasn't, and nobody said that it may not."""
        return not self._may_not_fire and not self.fired

    def never_fired(self) -> FaultNeverFiredError:
        """What is raised where it had to."""
        return FaultNeverFiredError(
            f"{self!r} has never fired: it saw {self.seen} of what it is about. may_not_fire=True allows that"
        )

    def release(self) -> int:
        """What it holds goes on; how many requests those were. Those that come later are held again."""
        return sum(node.ask({"ask": "release_fault", "number": number}) for node, number in self._armed)

    def disarm(self) -> None:
        """It is over. What it holds goes on."""
        armed, self._armed = self._armed, []
        for node, number in armed:
            try:
                self._last.append(node.ask({"ask": "disarm_fault", "number": number}))
            except (QuestionRefusedError, BrokerError):
                if self._said["do"] == CRASH:
                    self._last.append(_CRASHED)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.disarm()
        if error is None and self.has_to_fire:
            raise self.never_fired()


class WithFaults(abc.ABC):
    """What a broker and a cluster have in common for tests of what goes wrong."""

    _faults: list[Fault]
    """Those that a test has armed, and didn't disarm itself."""

    @abc.abstractmethod
    def _named_nodes(self) -> Iterable[tuple[str, Asked]]:
        """All nodes that can be asked, with their names, or one without."""

    def _armed_faults(self) -> list[Fault]:
        if not hasattr(self, "_faults"):
            self._faults = []
        return self._faults

    def disarm_faults(self) -> list[Fault]:
        """None is armed any more when this returns: those that were. The fixtures of pytest do so behind each test."""
        armed, self._faults = self._armed_faults(), []
        for fault in armed:
            fault.disarm()
        return armed

    def fault(
        self,
        api: str | Sequence[str] | None = None,
        do: str = "error",
        *,
        at: str = "request",
        error: str | None = None,
        message: str | None = None,
        delay: float | None = None,
        client_id: str | None = None,
        principal: str | None = None,
        transactional_id: str | None = None,
        group: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        fields: Mapping[str, Any] | None = None,
        nth: int = 1,
        times: int | None = 1,
        probability: float | None = None,
        seed: int | None = None,
        may_not_fire: bool = False,
    ) -> Fault:
        """Arm a fault: it is there when the call returns, at each node that runs, until it is disarmed.

        api: the names of the requests that it is about, as "EndTxn"; None for all.
        do: "error" (answer with `error`, Kafka's name of one), "delay" (for `delay` seconds), "hold" (until
            `Fault.release`), "drop" (answer nothing), "close" (the connection), "cut" (the connection, amid the
            answer), or "crash" (the broker, as kill -9 does).
        at: "request", before anything is done for it, or "answer", once all is done and before its client is told. Of
            a transaction's markers: "marker", before one is written, or "marked", once it is written and before the
            transaction's coordinator hears of it. These go one after the other then, in the order of the partitions.
        client_id, principal ("User:alice"), transactional_id, group, topic, partition: only of these. `fields`: only
            where the request has these values, by names of fields, as {"committed": True}.
        nth: from which of these on, at each node; times: for how many, None for all. `probability`: on each with
            this one, drawn by `seed`.
        may_not_fire: else the end of its `with` raises FaultNeverFiredError where it hasn't fired.

        Raises ValueError for what there is not, naming what there is.
        """
        said: dict[str, Any] = {"do": do, "at": at, "nth": nth, "times": times}
        chosen = {
            "api": api,
            "error": error,
            "message": message,
            "delay_ms": None if delay is None else round(delay * 1000),
            "client_id": client_id,
            "principal": principal,
            "transactional_id": transactional_id,
            "group": group,
            "topic": topic,
            "partition": partition,
            "fields": fields,
            "probability": probability,
            "seed": seed,
        }
        said |= {name: value for name, value in chosen.items() if value is not None}
        fault = Fault([node for _, node in self._named_nodes()], said, may_not_fire=may_not_fire)
        self._armed_faults().append(fault)
        return fault
