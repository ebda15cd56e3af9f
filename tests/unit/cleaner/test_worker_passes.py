"""Processes that make passes: when one is started, reused, dismissed or lost, and what is done without one."""

from __future__ import annotations

import errno
from array import array
from collections.abc import Callable
from typing import Any

import pytest

from broker.cleaner.passes import PassLostError, Throttle
from broker.cleaner.worker import GO, HELLO, Failure, Order, Rest
from broker.cleaner.worker_passes import KEPT_IDLE_S, MOST_REFUSED, WorkerPasses
from broker.environment.worker_channel import framed, taken
from storage.cleaning.plan import CleaningPlan, CleaningSettings, UncleanableError

UNTHROTTLED = 1.7976931348623157e308
PLAN = CleaningPlan(
    topic="t",
    partition=0,
    directory="/t-0",
    segments=(),
    log_start_offset=0,
    first_dirty_offset=0,
    first_uncleanable_offset=0,
    high_watermark=0,
    now_ms=0,
    max_keys=1,
    producers=array("q", [7, 8, 1, 0, 10, -1]),
    keep_txn_index=False,
    settings=CleaningSettings(1, 1, 1, 1, 1),
)


class Scheduled:
    def __init__(self, delay_s: float, callback: Callable[[], object]) -> None:
        self.delay_s, self.callback, self.is_cancelled = delay_s, callback, False

    def cancel(self) -> None:
        self.is_cancelled = True


class Scheduler:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.waiting: list[Scheduled] = []

    def time(self) -> float:
        return self.now_s

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Scheduled:
        self.waiting.append(Scheduled(delay_s, callback))
        return self.waiting[-1]

    def run(self) -> list[float]:
        due, self.waiting = [each for each in self.waiting if not each.is_cancelled], []
        for each in due:
            each.callback()
        return [each.delay_s for each in due]


class Worker:
    def __init__(self, received: Callable[[Any], None], ended: Callable[[], None]) -> None:
        self.received, self.ended = received, ended
        self.sent: list[object] = []
        self.is_killed = False
        self.hangs = False
        self.gone: Callable[[], None] | None = None

    def send(self, message: object) -> None:
        self.sent.append(message)

    def kill(self, gone: Callable[[], None]) -> None:
        self.is_killed, self.gone = True, gone

    def kill_and_wait(self) -> bool:
        self.is_killed = True
        return not self.hangs


class Workers:
    def __init__(self) -> None:
        self.started: list[Worker] = []
        self.refuses: int | None = None

    def start(self, module: str, received: Callable[[Any], None], ended: Callable[[], None]) -> Worker:
        if self.refuses is not None:
            raise OSError(self.refuses, "no more processes")
        self.started.append(Worker(received, ended))
        return self.started[-1]


class Told:
    def __init__(self) -> None:
        self.errors: list[Exception] = []

    def failed(self, error: Exception) -> None:
        self.errors.append(error)


class DoneHere:
    def __init__(self) -> None:
        self.is_ended = False

    def end(self, ended: Callable[[], None]) -> None:
        self.is_ended = True
        ended()


class Instead:
    def __init__(self) -> None:
        self.begun: list[DoneHere] = []

    def begin(self, plan: Any, told: Any, throttle: Any) -> Any:
        self.begun.append(DoneHere())
        return self.begun[-1]


class Office:
    def __init__(self, rate: float = UNTHROTTLED) -> None:
        self.scheduler, self.workers = Scheduler(), Workers()
        self.instead = Instead()
        self.passes: Any = WorkerPasses(self.workers, self.scheduler, self.instead)  # type: ignore[arg-type]
        self.throttle = Throttle(rate, 0.0)

    def begin(self) -> tuple[Any, Told]:
        told = Told()
        return self.passes.begin(PLAN, told, self.throttle), told


def test_an_idle_process_is_used_again_and_a_busy_one_is_not() -> None:
    office = Office()
    office.begin()
    office.begin()
    assert len(office.workers.started) == 2
    office.workers.started[0].received(Failure("partition", "why"))
    office.begin()
    assert len(office.workers.started) == 2
    assert office.workers.started[0].sent == [Order(PLAN, 0)] * 2


def test_an_idle_process_is_dismissed_after_a_while_unless_there_is_something_to_do() -> None:
    office = Office()
    office.begin()
    office.workers.started[0].received(Failure("partition", "why"))
    office.passes.rest()
    office.begin()
    assert office.scheduler.run() == []
    office.workers.started[0].received(Failure("partition", "why"))
    office.passes.rest()
    assert office.scheduler.run() == [KEPT_IDLE_S]
    assert office.workers.started[0].is_killed


def test_each_failure_is_reported_by_its_type_and_leaves_the_process_usable() -> None:
    office = Office()
    for kind, expected in (("partition", UncleanableError), ("disk", OSError), ("memory", PassLostError)):
        _pass, told = office.begin()
        office.workers.started[0].received(Failure(kind, "why", 5))
        assert [type(error) for error in told.errors] == [expected]
    assert len(office.workers.started) == 1


def test_a_process_that_dies_costs_its_pass_and_is_not_used_again() -> None:
    office = Office()
    _pass, told = office.begin()
    office.workers.started[0].received(HELLO)
    office.workers.started[0].ended()
    assert [type(error) for error in told.errors] == [PassLostError]
    office.begin()
    assert len(office.workers.started) == 2


def test_a_pass_that_is_ended_takes_its_process_and_is_over_once_that_is_gone() -> None:
    office = Office()
    begun, told = office.begin()
    ended: list[bool] = []
    begun.end(lambda: ended.append(True))
    [worker] = office.workers.started
    worker.received(Failure("partition", "too late"))
    assert (worker.is_killed, ended, told.errors) == (True, [], [])
    assert worker.gone is not None
    worker.gone()
    assert ended == [True]


def test_a_throttled_pass_rests_as_long_as_instructed() -> None:
    office = Office(rate=1_000_000.0)
    office.begin()
    [worker] = office.workers.started
    assert worker.sent == [Order(PLAN, 100_000)]
    office.scheduler.now_s = 0.5
    worker.received(Rest(1_000_000))
    assert office.scheduler.run() == [0.5]
    assert worker.sent[1:] == [GO]


def test_if_no_process_can_be_started_the_pass_is_made_here() -> None:
    office = Office()
    office.workers.refuses = errno.ENOENT
    begun, _told = office.begin()
    assert [begun] == office.instead.begun


@pytest.mark.limit("broker.cleaner.worker_passes.MOST_REFUSED")
@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE])
def test_without_room_for_a_process_the_pass_is_tried_again_and_made_here_in_the_end(number: int) -> None:
    office = Office()
    office.workers.refuses = number
    for _ in range(MOST_REFUSED):
        with pytest.raises(MemoryError, match="can't start a process"):
            office.begin()
    assert office.instead.begun == []
    begun, _told = office.begin()
    assert [begun] == office.instead.begun
    office.workers.refuses = None
    office.begin()
    office.workers.refuses = number
    with pytest.raises(MemoryError):
        office.begin()


def test_the_pass_of_a_process_that_could_not_begin_is_made_here_and_may_be_ended() -> None:
    office = Office()
    begun, told = office.begin()
    office.workers.started[0].ended()
    assert told.errors == []
    [made_here] = office.instead.begun
    ended: list[bool] = []
    begun.end(lambda: ended.append(True))
    assert (made_here.is_ended, ended) == (True, [True])
    office.begin()
    assert len(office.workers.started) == 2


def test_a_stop_says_whether_all_processes_are_gone() -> None:
    for hangs in (False, True):
        office = Office()
        office.begin()
        office.begin()
        office.workers.started[0].hangs = hangs
        assert office.passes.stop() is not hangs
        assert all(worker.is_killed for worker in office.workers.started)


def test_a_plan_comes_out_of_its_order_as_it_was() -> None:
    assert taken(bytearray(framed(Order(PLAN, 0))))[0].plan == PLAN
