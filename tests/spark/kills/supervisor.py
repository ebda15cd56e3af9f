"""Runs a job in a process of its own, kills by plan, and starts again what was killed, as an operator would.

The job tells of its micro-batches by lines on its standard output: `batch QUERY ID` when one begins, `wrote QUERY ID
TRIES` when it was written. Where it was started again, it goes on from its checkpoints.
"""

from __future__ import annotations

import os
import queue
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tests.spark.kills import processes
from tests.spark.kills.plan import Kill

ROOT = Path(__file__).parents[3]
STALLED_S = 600.0
MOST_FAILURES = 8
FIRST_DURATION_S = 1.0
RECENT = 9
LONG = 2  # batches
PROCESSES = {"worker": processes.workers, "executor": processes.executors}


@dataclass(slots=True)
class Run:
    """What became of a run.

    amid: kills that found their batch not written yet. writing: those of workers and executors that were writing to the
    broker. batches: how many began, each again with every try of Spark's. restarts: of the job, killed or failed;
    failures: those that no kill of the driver explains. tries: of batches that the sink wrote, beyond the first.
    """

    kills: dict[str, int] = field(default_factory=dict)
    amid: int = 0
    writing: int = 0
    batches: dict[str, int] = field(default_factory=dict)
    begun: int = 0
    restarts: int = 0
    failures: int = 0
    tries: int = 0
    took_s: float = 0.0

    def add(self, other: Run) -> None:
        """Another run that followed this one."""
        for victim, count in other.kills.items():
            self.kills[victim] = self.kills.get(victim, 0) + count
        for query, count in other.batches.items():
            self.batches[query] = self.batches.get(query, 0) + count
        self.amid += other.amid
        self.writing += other.writing
        self.begun += other.begun
        self.restarts += other.restarts
        self.failures += other.failures
        self.tries += other.tries
        self.took_s += other.took_s


class Killed(Protocol):
    """Where the topics are, and what is killed there."""

    @property
    def bootstrap(self) -> str: ...
    def kill(self) -> None: ...
    def start(self) -> object: ...


def _first_behind_last(query: str, batch_id: int) -> int:
    """Of a job with one query."""
    return batch_id


class Supervisor:
    """command: runs the job. log: where its standard error goes.

    number: counts batches over all queries of the job, for the plan.
    while_down: what befalls the rest of the world while the driver is dead, by the victim's name in the plan; it tells
        whether it could.
    begun: hears of each batch that begins, by its number.
    """

    def __init__(
        self,
        server: Killed,
        command: Sequence[str],
        log: Path,
        *,
        number: Callable[[str, int], int] = _first_behind_last,
        while_down: Mapping[str, Callable[[], bool]] | None = None,
        begun: Callable[[int], None] = lambda number: None,
        say: Callable[[str], None] = lambda what: None,
    ) -> None:
        self._server = server
        self._command = list(command)
        self._log = log
        self._number = number
        self._while_down = dict(while_down or {})
        self._begun = begun
        self._say = say
        self._lines: queue.Queue[tuple[int, float, str | None]] = queue.Queue()
        self._job: subprocess.Popen[str] | None = None
        # Their median, for a batch that outlasts a kill may take as long as ten.
        self._durations_s = deque([FIRST_DURATION_S], RECENT)
        self._began_s = 0.0
        self.run = Run()

    def run_through(self, kills: Sequence[Kill], seed: int) -> Run:
        """Until the job is done. seed: which worker, or which executor, is killed.

        AssertionError where the job stalls, fails again and again, or ends before all kills were made.
        """
        left = list(kills)
        chance = random.Random(seed)
        started_s = time.monotonic()
        self._start()
        try:
            while self._next(left, chance):
                pass
        finally:
            self._end_job()
        self.run.took_s = time.monotonic() - started_s
        assert not left, f"the job was done before {len(left)} kills were made"
        return self.run

    def _next(self, left: list[Kill], chance: random.Random) -> bool:
        """Take one line of the job's; False when it is done."""
        assert self._job is not None
        pid, now_s, line = self._lines.get(timeout=STALLED_S)
        if pid != self._job.pid:
            return True
        if line is None:
            if self._job.wait() == 0:
                return False
            self._failed()
            return True
        kind, *words = line.split()
        if kind == "wrote":
            self._durations_s.append(now_s - self._began_s)
            self.run.tries += int(words[2]) - 1
        elif kind == "batch":
            query, batch_id = words[0], int(words[1])
            self._began_s = now_s
            self.run.begun += 1
            self.run.batches[query] = max(self.run.batches.get(query, 0), batch_id + 1)
            number = self._number(query, batch_id)
            self._begun(number)
            # Not in a batch that is over by now.
            is_due = left and number >= left[0].at and self._lines.empty()
            if is_due and self._strike(left[0], chance):
                victim = left.pop(0).victim
                self.run.kills[victim] = self.run.kills.get(victim, 0) + 1
                so_far = sum(self.run.kills.values())
                self._say(
                    f"killed the {victim} in batch {query} {batch_id}, {so_far} of {so_far + len(left)}"
                )
        return True

    def _strike(self, kill: Kill, chance: random.Random) -> bool:
        """Whether it was made: a job that has ended by itself has no workers."""
        assert self._job is not None
        time.sleep(kill.after * statistics.median(self._durations_s))
        is_amid, writing = self._lines.empty(), self.run.writing
        is_made = self._kill(kill.victim, chance)
        self.run.amid += is_made and (is_amid or self.run.writing > writing)
        return is_made

    def _kill(self, victim: str, chance: random.Random) -> bool:
        if victim == "broker":
            self._server.kill()
            self._server.start()
            return True
        if victim in PROCESSES:
            return self._kill_one(PROCESSES[victim], chance)
        self._end_job()
        is_made = self._while_down.get(victim, _nothing)()
        self._start()
        self.run.restarts += 1
        return is_made

    def _kill_one(self, find: Callable[[int], list[int]], chance: random.Random) -> bool:
        """One that writes just now, if there is one before long, else any."""
        assert self._job is not None
        ports = processes.ports(self._server.bootstrap)
        deadline_s = time.monotonic() + LONG * statistics.median(self._durations_s)
        while True:
            found = find(self._job.pid)
            writing = processes.that_write(found, self._job.pid, ports)
            if writing or (found and time.monotonic() > deadline_s):
                break
            if self._job.poll() is not None:
                return False
            time.sleep(0.01)
        os.kill(chance.choice(writing or found), signal.SIGKILL)
        self.run.writing += bool(writing)
        return True

    def _failed(self) -> None:
        self.run.failures += 1
        self.run.restarts += 1
        log = self._log.read_text(errors="replace")
        assert self.run.failures <= MOST_FAILURES, f"the job failed {self.run.failures} times: {log[-6000:]}"
        self._say(f"the job failed and is started again: {log.rstrip().rpartition(chr(10))[2][:300]}")
        self._start()

    def _start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
        with self._log.open("a") as log:
            job = self._job = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                env=environment,
                # Driver and JVM are one group, which dies together.
                start_new_session=True,
            )
        # Where this process is killed, its end of the pipe closes, and the shell ends what it would leave.
        guard = subprocess.Popen(
            ["/bin/sh", "-c", 'cat; kill -9 "-$0"', str(job.pid)],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        threading.Thread(target=self._read, args=(job, guard), daemon=True).start()

    def _read(self, job: subprocess.Popen[str], guard: subprocess.Popen[bytes]) -> None:
        assert job.stdout is not None
        for line in job.stdout:
            if line.startswith(("batch ", "wrote ")):
                self._lines.put((job.pid, time.monotonic(), line))
        job.stdout.close()
        guard.kill()
        guard.communicate()
        self._lines.put((job.pid, time.monotonic(), None))

    def _end_job(self) -> None:
        job = self._job
        assert job is not None
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()


def _nothing() -> bool:
    """Befalls the world while a driver is dead that was killed by itself."""
    return True
