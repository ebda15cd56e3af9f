"""Faults: what goes wrong with which of a broker's requests, armed by a test.

    with broker.fault("EndTxn", "drop", at="answer", transactional_id="payer") as fault:
        ...
    # it fired, or the test fails here

`broker.faults.faults` (in the broker's process) says what there is.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

from barnabas.child import Asked, BrokerError, OfNodes, QuestionRefusedError, said

POLL_S = 0.005


class FaultNeverFiredError(AssertionError):
    """A fault was armed, and nothing that it is about happened. So the test doesn't show what it seems to show."""


CRASH, PAUSE = "crash", "pause"

Times: TypeAlias = int | Literal["as the fault is"] | None
"""How often a fault happens. None means always. By default most faults happen once, `"stale"` and `"versions"`
always."""


class _ArmedAt:
    """A fault at one node, and the last that the node reported about it."""

    def __init__(self, node: Asked, said: Mapping[str, Any]) -> None:
        """Raises QuestionRefusedError."""
        self.node = node
        self._do = said["do"]
        self._pid = node.pid
        self._number = node.ask({"ask": "arm_fault", "fault": said})
        self._heard: Mapping[str, int] = {"seen": 0, "fired": 0, "standing": 0}

    def state(self) -> Mapping[str, int]:
        """Return the fault's counts. If the node was restarted or is gone, the fault is gone too, and holds no request
        any more."""
        return self._asked("fault")

    def disarm(self) -> Mapping[str, int]:
        """Disarm it and return its last counts. Requests that it holds go on."""
        self.resume()
        return self._asked("disarm_fault")

    def release(self) -> int:
        """Let go of the requests that it holds, and return how many. Raises QuestionRefusedError, BrokerError."""
        self.resume()
        return int(self.node.ask({"ask": "release_fault", "number": self._number}))

    def resume(self) -> None:
        if self._do == PAUSE and self.node.paused:
            self.node.resume()

    def _asked(self, question: str) -> Mapping[str, int]:
        try:
            if not self._has_paused():
                self._heard = self.node.ask({"ask": question, "number": self._number})
        except (QuestionRefusedError, BrokerError):
            if not self._has_paused():
                # A crashed node can't report its crash.
                crashed = self._do == CRASH and self.node.has_crashed(self._pid)
                fired = max(self._heard["fired"], crashed)
                self._heard = {"seen": max(self._heard["seen"], fired), "fired": fired, "standing": 0}
        return self._heard

    def _has_paused(self) -> bool:
        if self._do == PAUSE and self.node.paused:
            self._heard = {"seen": 1, "fired": 1, "standing": 1}
            return True
        return False


class Fault:
    """An armed fault, at one broker or several. The end of its `with` disarms it, and fails if it hasn't fired."""

    def __init__(self, nodes: Sequence[Asked], said: Mapping[str, Any], *, may_not_fire: bool) -> None:
        """Raises ValueError for an unknown name."""
        self._said = said
        self._may_not_fire = may_not_fire
        self._armed: list[_ArmedAt] = []
        self._last: Sequence[Mapping[str, int]] | None = None
        """The last counts, once it is disarmed."""
        try:
            for node in nodes:
                self._armed.append(_ArmedAt(node, said))
        except QuestionRefusedError as refusal:
            self.disarm()
            raise ValueError(str(refusal)) from None

    def __repr__(self) -> str:
        words = [f"{name}={value!r}" for name, value in self._said.items()]
        return f"<fault {', '.join(words)}>"

    @property
    def seen(self) -> int:
        """How many matching requests or markers have come so far."""
        return self._sum("seen")

    @property
    def fired(self) -> int:
        """How many of them it has happened to."""
        return self._sum("fired")

    @property
    def standing(self) -> int:
        """How many of them it holds now."""
        return self._sum("standing")

    def _sum(self, what: str) -> int:
        states = [each.state() for each in self._armed] if self._last is None else self._last
        return sum(state[what] for state in states)

    def reached(self, count: int = 1, timeout: float = 30.0) -> Self:
        """Wait until it holds `count` requests. Raises TimeoutError."""
        return self._until("standing", count, timeout)

    def wait_until_fired(self, count: int = 1, timeout: float = 30.0) -> Self:
        """Wait until it has happened to `count` requests. Raises TimeoutError."""
        return self._until("fired", count, timeout)

    def _until(self, what: str, count: int, timeout: float) -> Self:
        deadline_s = time.monotonic() + timeout
        while self._sum(what) < count:
            if time.monotonic() > deadline_s:
                raise TimeoutError(
                    f"{self!r}: within {timeout:g} s it matched {self.seen} times, fired {self.fired} times, "
                    f"and holds {self.standing}"
                )
            time.sleep(POLL_S)
        return self

    def narrowed(self) -> Sequence[Asked]:
        """Disarm it at all nodes but one where it has fired. Return that node, and behind it those where it had fired
        too before it was disarmed."""
        found = next(each for each in self._armed if each.state()["fired"])
        late = [each.node for each in self._armed if each is not found and each.disarm()["fired"]]
        self._armed = [found]
        return [found.node, *late]

    @property
    def has_to_fire(self) -> bool:
        """True if it still has to fire: it hasn't, and `may_not_fire` doesn't allow that."""
        return not self._may_not_fire and not self.fired

    def never_fired(self) -> FaultNeverFiredError:
        """The error to raise if it had to fire and didn't."""
        return FaultNeverFiredError(
            f"{self!r} has never fired: it matched {self.seen} times. may_not_fire=True allows that"
        )

    def release(self) -> int:
        """Let go of the requests that it holds, and return how many. Later ones are held again. A node that it has
        paused goes on."""
        return sum(each.release() for each in self._armed)

    def disarm(self) -> None:
        """End the fault, and let go of what it holds."""
        if self._last is None:
            self._last = [each.disarm() for each in self._armed]

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


class WithFaults(OfNodes):
    """Faults of a broker and a cluster."""

    _faults: list[Fault]
    """The faults that a test has armed and not disarmed itself."""

    def _armed_faults(self) -> list[Fault]:
        if not hasattr(self, "_faults"):
            self._faults = []
        return self._faults

    def disarm_faults(self) -> list[Fault]:
        """Disarm all faults, and return those that were armed. The fixtures of pytest do this after each test."""
        armed, self._faults = self._armed_faults(), []
        for fault in armed:
            fault.disarm()
        return armed

    def fault(
        self,
        api: str | Sequence[str] | None = None,
        do: str = "error",
        *,
        at: str | None = None,
        error: str | None = None,
        message: str | None = None,
        delay: float | None = None,
        client_id: str | None = None,
        principal: str | None = None,
        transactional_id: str | None = None,
        group: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        operation: str | Sequence[str] | None = None,
        file: str | None = None,
        fields: Mapping[str, Any] | None = None,
        versions: Mapping[str, tuple[int, int]] | None = None,
        nth: int = 1,
        times: Times = "as the fault is",
        probability: float | None = None,
        seed: int | None = None,
        may_not_fire: bool = False,
    ) -> Fault:
        """Arm a fault at each node that runs. It is armed when the call returns, until it is disarmed.

        api: names of requests, such as "EndTxn"; None for all.
        do: "error" (answer with `error`, Kafka's name of one), "delay" (for `delay` seconds), "hold" (until
            `Fault.release`), "drop" (answer nothing), "close" (the connection), "cut" (the connection, in the middle of
            the answer), "twice" (do the work, or answer, twice), "late" (answer after the client's next requests: after
            `delay` seconds, or at `Fault.release`), "stale" (answer what the same request got first), "throttle" (for
            `delay` seconds), "versions" (ApiVersions lists only `versions`, such as {"Fetch": (4, 12)}), "corrupt" (a
            byte of the records), "pause" (the broker, as SIGSTOP does, until `Fault.release`), or "crash" (the broker,
            as kill -9 does).
        at: "request": before any work for it. "answer": after all work, before its client is told.
            In a transaction: "prepare" and "prepared": before and after the record that decides it. "marker": before a
            marker is written. "marked": after that, before the coordinator hears of it. (With these two, markers are
            written one after the other, in the order of the partitions.) "complete" and "completed": before and after
            the record that says that all markers are there.
            In a coordinator: "load": before it reads a partition. "rebalance": before a classic group's next
            generation.
            "file": before an operation on a file. It can fail with an `error` such as "ENOSPC" or "EIO", take `delay`
            seconds, or find a byte of the file flipped ("flip").
        client_id, principal ("User:alice"), transactional_id, group, topic, partition: only requests that name it.
        operation ("append", "sync", "read"...), file ("*.log"): only these operations, on these files.
        fields: only requests with these values, by names of fields, such as {"committed": True}.
        nth: from which one on, counted at each node. times: how often; None is always.
        probability: how likely it happens to each, drawn by `seed`.
        may_not_fire: the end of its `with` doesn't raise FaultNeverFiredError if it hasn't fired.

        Raises ValueError for an unknown name, and lists the known ones.
        """
        wanted: dict[str, Any] = {"do": do, "nth": nth}
        if times != "as the fault is":
            wanted["times"] = times
        wanted |= said(
            at=at,
            api=api,
            error=error,
            message=message,
            delay_ms=None if delay is None else round(delay * 1000),
            client_id=client_id,
            principal=principal,
            transactional_id=transactional_id,
            group=group,
            topic=topic,
            partition=partition,
            operation=operation,
            file=file,
            fields=fields,
            versions=versions,
            probability=probability,
            seed=seed,
        )
        fault = Fault([node for _, node in self._named_nodes()], wanted, may_not_fire=may_not_fire)
        self._armed_faults().append(fault)
        return fault
