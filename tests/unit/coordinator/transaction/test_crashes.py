"""A broker that dies at each append in turn, before or after its record is in the log; or whose append fails.

The client asks again for what was not answered, as clients do, and goes on: in the end everything is as if nothing had
happened. Each request's appends are crossed: adding, preparing, completing, with markers that had arrived or not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from coordinator.ports import CoordinatorRecord
from coordinator.transaction.state_manager import ProducerIdAndEpoch
from coordinator.transaction.states import EMPTY, EXPIRES
from protocol.errors import Error
from tests.unit.coordinator.transaction.coordinator import T0, T1, TIMEOUT_MS, Coordinator

RETRIABLE = (Error.CONCURRENT_TRANSACTIONS, Error.COORDINATOR_NOT_AVAILABLE)


class Crashed(BaseException):
    pass


class Script:
    """One client's three transactions: committed, aborted and timed out. Its epochs may be nearly used up."""

    def __init__(self, version: int, first_epoch: int, at: int, how: str) -> None:
        self.version = version
        self.at, self.how = at, how
        self.appends = 0
        self.told: list[str] = []
        self.me = ProducerIdAndEpoch(7, first_epoch)
        self.it = Coordinator()
        self.it.put(EMPTY, 7, first_epoch, last_producer_epoch=first_epoch - 1)
        assert self.it.init(7, first_epoch - 1) == self.me  # so that the log has this record
        self.it.shard.start()
        self._interrupt()

    def _interrupt(self) -> None:
        write = self.it.runtime.append

        def append(records: Sequence[CoordinatorRecord], **rest: Any) -> int:
            self.appends += 1
            is_now = self.appends == self.at
            if is_now and self.how == "dies before":
                raise Crashed
            self.it.runtime.failing = (
                Error.COORDINATOR_NOT_AVAILABLE if is_now and self.how == "fails" else None
            )
            first = write(records, **rest)
            if is_now and self.how == "dies after":
                raise Crashed
            return first

        self.it.runtime.append = append  # type: ignore[method-assign]

    def _until_answered(self, ask: Callable[[], Any]) -> Any:
        for _ in range(10):
            try:
                answer = ask()
            except Crashed:
                self.it = self.it.restarted()
                self._interrupt()
                continue
            if answer not in RETRIABLE:
                return answer
            self.it.runtime.pass_ms(1_000)
        raise AssertionError("it has to wait for ever")

    def run(self) -> None:
        for commit in (True, False):
            for partition in (T0, T1):
                answer = self._until_answered(lambda: self.it.add(*self.me, partition, version=self.version))  # noqa: B023
                assert answer is Error.NONE
            answer = self._until_answered(lambda: self.it.end(*self.me, commit=commit, version=self.version))  # noqa: B023
            assert isinstance(answer, ProducerIdAndEpoch)
            self.told.append("commit" if commit else "abort")
            if self.version == 2:
                self.me = answer
        assert self._until_answered(lambda: self.it.add(*self.me, T0, version=self.version)) is Error.NONE
        for _ in range(2):  # if the first abort fails, the next check tries again
            try:
                self.it.runtime.pass_ms(TIMEOUT_MS + 20_000)
            except Crashed:
                self.it = self.it.restarted()
                self._interrupt()
        self.told.append("abort")

    def ended(self) -> list[str]:
        """Return how the transactions ended, by the Prepare* records in the log."""
        return [
            told.split()[0].removeprefix("Prepare").lower() for told in self.it.told() if told[:4] == "Prep"
        ]


SCRIPTS = [(0, 5), (2, 5), (2, 32764), (2, 32765)]


@pytest.mark.parametrize(("version", "first_epoch"), SCRIPTS)
@pytest.mark.parametrize("how", ["dies before", "dies after", "fails"])
def test_whichever_append_crashes_the_client_gets_the_outcome_it_asked_for(
    version: int, first_epoch: int, how: str
) -> None:
    undisturbed = Script(version, first_epoch, 0, how)
    undisturbed.run()
    assert undisturbed.appends == 11
    for at in range(1, undisturbed.appends + 1):
        script = Script(version, first_epoch, at, how)
        script.run()
        assert script.ended() == script.told == ["commit", "abort", "abort"], f"append {at} {how}"
        assert script.it.x.state in EXPIRES, f"append {at} {how}"
        assert script.it.x.pending_state is None
        assert script.it.x.producer_epoch == undisturbed.it.x.producer_epoch, f"append {at} {how}"
        assert script.it.completions == {}
