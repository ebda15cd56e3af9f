"""`barnabas.prove`: runs the program once undisturbed, and then once for each hazard, from the same state."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

from barnabas.child import BrokerError
from barnabas.faults import Fault
from barnabas.journal import Request
from barnabas.proving.grounds import ALL_OVER_MINUTES, GROUND_FAILURES, Ground, OneBroker, SeveralBrokers
from barnabas.proving.hazards import Hazard, Strike, Thoroughness, client_of, hazards_of, lasting
from barnabas.proving.outcomes import (
    Difference,
    Output,
    aborted,
    committed,
    difference,
    reasons,
)
from barnabas.proving.program import Program, Runnable, check, started

POLL_S = 0.02
MOST_STARTS = 6
"""The most starts of the program in one run. A supervisor restarts it each time it fails."""
MOST_HAZARDS = 500
OF_RUNS = "barnabas-prove-"

_FAULTS: Mapping[Strike, tuple[str, str]] = {
    Strike.REQUEST_LOST: ("close", "request"),
    Strike.ANSWER_LOST: ("close", "answer"),
    Strike.ANSWER_AWAITED: ("drop", "answer"),
    Strike.PROGRAM_KILLED_BEFORE: ("drop", "request"),
    Strike.PROGRAM_KILLED_AFTER: ("drop", "answer"),
    Strike.BROKER_KILLED_BEFORE: ("hold", "request"),
    Strike.BROKER_KILLED_AFTER: ("hold", "answer"),
    Strike.TAKEN_OVER: ("hold", "request"),
    Strike.TIMED_OUT: ("hold", "request"),
    Strike.GROUP_MOVED_ON: ("error", "request"),
    Strike.MOVED: ("hold", "request"),
}
"""The fault for each strike: `do` and `at`."""
_ERRORS: Mapping[Strike, str] = {Strike.GROUP_MOVED_ON: "ILLEGAL_GENERATION"}


class Trial(NamedTuple):
    """One run. `hazard` is None for the undisturbed one."""

    hazard: Hazard | None
    seconds: float
    is_reached: bool
    difference: Difference
    reasons: Sequence[str]
    notes: Sequence[str]
    printed: str
    requests: Sequence[Request]
    unjudged: str = ""
    """Why nobody knows the outcome: what the brokers failed to do. Empty if it is known."""

    @property
    def holds(self) -> bool:
        """True if the hazard happened, and the outcome is known and stayed equal."""
        return self.is_reached and not self.unjudged and self.difference.is_none


class Proof(NamedTuple):
    """The results of all runs."""

    undisturbed: Trial
    expected: Counter[Output]
    trials: Sequence[Trial]

    @property
    def holds(self) -> bool:
        """True if the outcome stayed equal in every run."""
        return bool(self.trials) and all(each.holds for each in self.trials)

    @property
    def failures(self) -> list[Trial]:
        """The runs whose outcome changed or isn't known, or whose hazard never happened."""
        return [each for each in self.trials if not each.holds]


class CannotProveError(Exception):
    """The program's undisturbed run shows nothing. The text says why."""


def prove(
    run: Runnable = (),
    *,
    outputs: Sequence[str],
    inputs: Sequence[str] = (),
    seed: Callable[[Any], object] | None = None,
    brokers: int = 1,
    environment: Mapping[str, str] | None = None,
    hazards: Iterable[Hazard] | None = None,
    how: Thoroughness = Thoroughness.NORMAL,
    most: int = MOST_HAZARDS,
    idle_s: float = 8.0,
    timeout_s: float = 60.0,
    told: Callable[[Trial], object] | None = None,
    command: Sequence[str] = (),
) -> Proof:
    """Run a program that consumes, transforms and produces, once undisturbed and once for each hazard, and compare.

    run: the program: a command, or a function that other processes can import. The function is called with the broker's
        address, in a process of its own. The program finds the address in `BARNABAS_BOOTSTRAP`, a command also in place
        of `{bootstrap}`. In `BARNABAS_FOLDER` and in place of `{folder}` it gets a folder that is empty when a run
        begins. It should end with status 0 when all is done; if it is idle for `idle_s`, it is ended. If it ends with
        another status it is started again, as a supervisor would do.
    outputs, inputs: topics. The committed records of `outputs` are compared by topic, key and value.
    seed: makes topics and records, and is given the Broker or Cluster. Each run begins with these.
    brokers: how many there are. With more than one, all runs use a Cluster.
    hazards: only these, instead of those of all steps (`how`); at most `most`.
    timeout_s: the limit for one run.
    told: is called after each run, first after the undisturbed one.
    command: another name for `run`.

    If brokers fail in a run, that run is a failure (`unjudged`), and the next one begins with new brokers. Raises
    CannotProveError if the undisturbed run doesn't end well, or writes nothing, and ValueError if `run` is a function
    that can't be imported.
    """
    if bool(run) == bool(command):
        raise TypeError("prove takes one program: a command or a function")
    run = run or command
    check(run)
    with OneBroker() if brokers == 1 else SeveralBrokers(brokers) as ground:
        if seed is not None:
            seed(ground.kafka)
        ground.keep()
        bench = _Bench(ground, run, outputs, inputs, environment or {}, idle_s, timeout_s)
        undisturbed, expected = bench.undisturbed()
        if told is not None:
            told(undisturbed)
        chosen = (
            hazards_of(undisturbed.requests, how, most, brokers) if hazards is None else [*hazards][:most]
        )
        trials = []
        for hazard in chosen:
            trials.append(bench.tried(hazard, expected))
            if told is not None:
                told(trials[-1])
        return Proof(undisturbed, expected, trials)


class _Bench:
    """What all runs share."""

    def __init__(
        self,
        ground: Ground,
        run: Runnable,
        outputs: Sequence[str],
        inputs: Sequence[str],
        environment: Mapping[str, str],
        idle_s: float,
        timeout_s: float,
    ) -> None:
        self.ground = ground
        self.outputs = outputs
        self.inputs = inputs
        self.idle_s = idle_s
        self.timeout_s = timeout_s
        self._program = run
        self._undisturbed_requests: Sequence[Request] = ()
        self._environment = environment

    def started(self, folder: str) -> Program:
        return started(self._program, self.ground.kafka.bootstrap, folder, self._environment)

    def undisturbed(self) -> tuple[Trial, Counter[Output]]:
        """Run the program undisturbed. Raises CannotProveError."""
        with tempfile.TemporaryDirectory(prefix=OF_RUNS, ignore_cleanup_errors=True) as folder:
            run = _Run(self, None, None, folder)
            trial, found = self._over(run, None)
        self._undisturbed_requests = trial.requests
        if run.starts > 1 or run.is_late:
            raise CannotProveError(
                f"the undisturbed program doesn't end well: {'; '.join(trial.notes)}\n{trial.printed}"
            )
        if not found:
            raise CannotProveError(
                f"the undisturbed program writes nothing to {', '.join(self.outputs)}: "
                f"{'; '.join(trial.notes)}\n{trial.printed}"
            )
        return trial, found

    def client_of(self, api: str) -> str | None:
        """See `hazards.client_of`: on a cluster, a hazard is to happen to the program, and not between brokers."""
        return client_of(self._undisturbed_requests, api)

    def tried(self, hazard: Hazard, expected: Counter[Output]) -> Trial:
        began_s = time.monotonic()
        with tempfile.TemporaryDirectory(prefix=OF_RUNS, ignore_cleanup_errors=True) as folder:
            run = _Run(self, hazard, expected, folder)
            try:
                return self._over(run, expected)[0]
            except GROUND_FAILURES as failure:
                self.ground.distrust()
                return Trial(
                    hazard=hazard,
                    seconds=time.monotonic() - began_s,
                    is_reached=run.is_reached,
                    difference=Difference({}, {}, {}),
                    reasons=(),
                    notes=run.notes,
                    printed=run.printed,
                    requests=run.requests,
                    unjudged=f"{type(failure).__name__}: {failure}",
                )

    def _over(self, run: _Run, expected: Counter[Output] | None) -> tuple[Trial, Counter[Output]]:
        self.ground.begin()
        began_s = time.monotonic()
        with run:
            run.go()
            run.end_programs()  # or they go on while their transactions are ended
            self.ground.settle()
            found = committed(self.ground.kafka, self.outputs)
        unlike = difference(found if expected is None else expected, found)
        trial = Trial(
            hazard=run.hazard,
            seconds=time.monotonic() - began_s,
            is_reached=run.is_reached,
            difference=unlike,
            reasons=() if unlike.is_none else self._reasons(run),
            notes=run.notes,
            printed="" if unlike.is_none and expected is not None else run.printed,
            requests=run.requests,
        )
        return trial, found

    def _reasons(self, run: _Run) -> Sequence[str]:
        return reasons(
            run.requests,
            aborted(self.ground.kafka, [*self.inputs, *self.outputs]),
            self._undisturbed_requests,
            inputs=self.inputs,
            kept_away=run.kept_away,
        )


class _Run:
    """The program from its start to its end, with its hazard on the way, for a `with` block."""

    def __init__(
        self, bench: _Bench, hazard: Hazard | None, expected: Counter[Output] | None, folder: str
    ) -> None:
        self.hazard = hazard
        self.requests: list[Request] = []
        self.notes: list[str] = []
        self.printed = ""
        self.starts = 0
        self.is_late = False
        self.is_reached = hazard is None
        self._bench = bench
        self._folder = folder
        self._ground = bench.ground
        self._expected = expected
        self._programs: list[Program] = []
        self._fault: Fault | None = None
        self._has_struck = False

    @property
    def kept_away(self) -> str:
        """The API of the request that the hazard keeps from the broker; empty if it takes away only an answer."""
        return self.hazard.api if self.hazard and _FAULTS[self.hazard.strike][1] == "request" else ""

    def go(self) -> None:
        """Run until the program is done, or out of time."""
        bench = self._bench
        if self.hazard is not None:
            do, at = _FAULTS[self.hazard.strike]
            error = _ERRORS.get(self.hazard.strike)
            self._fault = self._ground.kafka.fault(
                self.hazard.api,
                do,
                at=at,
                error=error,
                client_id=bench.client_of(self.hazard.api),
                nth=self.hazard.nth,
                may_not_fire=True,
            )
        self._start()
        deadline_s = time.monotonic() + bench.timeout_s
        moved_s = time.monotonic()
        has_waited = False
        while True:
            if self._look():
                moved_s = time.monotonic()
            if not self._has_struck and self._fault is not None and self._fault.fired:
                self.is_reached = self._has_struck = True
                self._note_others(self._ground.struck(self._fault))
                self._strike()
                moved_s = time.monotonic()
            if not self._supervised():
                return
            if time.monotonic() > deadline_s:
                self.is_late = True
                self.notes.append(f"it hadn't ended after {bench.timeout_s:g} s")
                return
            if time.monotonic() - moved_s > bench.idle_s:
                if has_waited or self._is_done():
                    return
                # Something keeps the program waiting, such as a transaction that only times out, or a timer of its own
                # client.
                has_waited = True
                self.notes.append(
                    f"it made no progress, was killed, and was restarted {ALL_OVER_MINUTES} minutes later"
                )
                self.end_programs()
                self._ground.end_all()
                self._start()
                moved_s = time.monotonic()
            time.sleep(POLL_S)

    def end(self) -> None:
        """End all its processes, and disarm the broker's faults."""
        try:
            self.requests = self._ground.requests()
        finally:  # whatever has become of the brokers
            self.end_programs()
        if self._ground.kafka.running:
            self._ground.kafka.disarm_faults()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Brokers that have failed already may fail again here.
        with contextlib.suppress(*GROUND_FAILURES if error is not None else ()):
            self.end()

    def end_programs(self) -> None:
        """Kill what still runs, and keep what it printed."""
        for each in self._programs:
            self.printed = each.ended() or self.printed
        self._programs.clear()

    def _start(self) -> None:
        self.starts += 1
        self._programs.append(self._bench.started(self._folder))

    def _supervised(self) -> bool:
        """Restart what has failed, up to a limit. Return False if the run is over."""
        for each in [*self._programs]:
            status = each.status
            if status is None:
                continue
            self._programs.remove(each)
            self.printed = each.ended() or self.printed
            if status == 0:
                continue
            self.notes.append(f"it ended with status {status}")
            if not self._programs:
                if self.starts == MOST_STARTS:
                    self.notes.append(f"it was started {MOST_STARTS} times; that is the limit")
                    return False
                self._ground.end_sessions()
                self._start()
        return bool(self._programs)

    def _is_done(self) -> bool:
        """True if all expected output is there. The undisturbed run is done when it is idle."""
        if self._expected is None:
            return True
        return committed(self._ground.kafka, self._bench.outputs) == self._expected

    def _look(self) -> bool:
        """True if the program has made progress since the last look."""
        return any(lasting(self._ground.news()))

    def _note_others(self, brokers: Sequence[str]) -> None:
        """Note at which other brokers the hazard has happened too. A request that was held there has gone on."""
        assert self.hazard is not None
        if brokers and _FAULTS[self.hazard.strike][0] != "hold":
            self.notes.append(f"it happened at {' and '.join(brokers)} at the same time")

    # --- the strikes ------------------------------------------------------------------------------------------

    def _strike(self) -> None:
        assert self.hazard is not None
        strike = self.hazard.strike
        if strike in (Strike.PROGRAM_KILLED_BEFORE, Strike.PROGRAM_KILLED_AFTER):
            self.end_programs()
            self._ground.end_sessions()
            self._start()
        elif strike in (Strike.BROKER_KILLED_BEFORE, Strike.BROKER_KILLED_AFTER):
            self._ground.kill_and_start()
        elif strike is Strike.TIMED_OUT:
            self._ground.end_all()
            self._release()
        elif strike is Strike.TAKEN_OVER:
            self._take_over()
        elif strike is Strike.MOVED:
            moved = self._ground.move(self.hazard.api)
            self.is_reached = bool(moved)
            self.notes.append(", ".join(moved) or "nothing could be moved")
            self._release()

    def _take_over(self) -> None:
        """Start a second instance, and wait until it ends or is idle."""
        self._ground.end_sessions()
        self._start()
        second = self._programs[-1]
        moved_s = time.monotonic()
        deadline_s = moved_s + self._bench.timeout_s / 2
        while second.status is None and time.monotonic() < deadline_s:
            if self._look():
                moved_s = time.monotonic()
            if time.monotonic() - moved_s > self._bench.idle_s:
                break
            time.sleep(POLL_S)
        self._release()

    def _release(self) -> None:
        assert self._fault is not None
        try:
            self._fault.disarm()
        except BrokerError as gone:
            self.notes.append(str(gone))
