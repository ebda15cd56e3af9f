"""One run of a job: creates its topics, feeds its input while it runs and is killed, and reads its outputs."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient

from barnabas.spark import ExactlyOnceKafkaSink, hanging
from barnabas.spark.wire import Wire
from tests.spark.jobs.driver import FED, GROUP, PREFIX, query_name
from tests.spark.jobs.feeder import QUIET, Feeder
from tests.spark.jobs.inputs import Chunks, Header
from tests.spark.jobs.queries import KINDS
from tests.spark.kills.plan import Kill
from tests.spark.kills.supervisor import Killed, Run, Supervisor
from tests.spark.outputs import PATIENCE_S, create, read
from tests.support.waiting import until, until_answered

PARTITIONS = 3
AHEAD = 3
TIMEOUT_MS = 60_000
ONGOING = "Ongoing"

Written = Counter[tuple[str, int, bytes | None, bytes | None, tuple[Header, ...]]]
"""Records as (topic, partition, key, value, headers), each with how often it is there. What names neither a key nor a
partition may go to any: its partition is -1."""


@dataclass(slots=True)
class Trial:
    """A job to run on an empty broker. master: Spark's master. kind: the job's name.

    generations: its inputs. For the second one the input topics are deleted and created again, and the query begins a
    new checkpoint under its old name. Spark requires that: the old checkpoint's offsets are those of other records.
    """

    kind: str
    server: Killed
    folder: Path
    generations: Sequence[Chunks]
    max_offsets: int
    master: str
    say: Callable[[str], None] = lambda what: None
    _kept: Written = field(default_factory=Counter)

    def run(self, kills: Sequence[Kill], seed: int) -> tuple[Run, Written]:
        """Run the job to its end. Raise AssertionError as `Supervisor.run_through` does."""
        kind = KINDS[self.kind]
        self._create([*kind.inputs, *kind.outputs])
        run = Run()
        count = len(self.generations)
        for number, chunks in enumerate(self.generations):
            if number:
                self._delete(kind.inputs)
                self._create(kind.inputs)
            # Places in the plan are dealt out in turn, so that each generation has its share of kills.
            its_own = [kill._replace(at=kill.at // count) for kill in kills if kill.at % count == number]
            run.add(self._run_through(chunks, self.folder / f"{number}", its_own, seed))
        return run, self._kept + self._written()

    def _run_through(self, chunks: Chunks, folder: Path, kills: Sequence[Kill], seed: int) -> Run:
        folder.mkdir()
        bootstrap = self.server.bootstrap
        command = [sys.executable, "-m", "tests.spark.jobs.driver", bootstrap, str(folder), self.kind]
        command += ["--max-offsets", str(self.max_offsets), "--master", self.master]
        feeder = Feeder(
            bootstrap,
            PREFIX,
            chunks,
            KINDS[self.kind].close(),
            # An undisturbed run need not last.
            ahead=AHEAD if kills else len(chunks),
            group=GROUP,
            fed=folder / FED,
        )
        supervisor = Supervisor(
            self.server,
            command,
            folder / "job.log",
            while_down={"topic": self._recreate_outputs},
            begun=feeder.begun,
            say=self.say,
        )
        with feeder:
            return supervisor.run_through(kills, seed)

    def _written(self) -> Written:
        found: Written = Counter()
        for one in KINDS[self.kind].outputs:
            topic = f"{PREFIX}-{one}"
            for seen in read(self.server.bootstrap, topic):
                headers = tuple(seen.headers)
                is_placed = seen.key is not None or any(name == "partition" for name, _ in headers)
                found[topic, seen.partition if is_placed else -1, seen.key, seen.value, headers] += 1
        return found

    def _recreate_outputs(self) -> bool:
        """Delete the job's output topics and create them again. Keep the records that a reader found there before.

        Return False if a transaction's markers are missing, as Apache Kafka may lose them: its records can't be read
        before the sink's next epoch.
        """
        bootstrap = self.server.bootstrap
        topics = [f"{PREFIX}-{one}" for one in KINDS[self.kind].outputs]
        connection = Wire(bootstrap, {}, TIMEOUT_MS)
        with contextlib.closing(connection):
            if not self._is_settled(connection, topics):
                return False
        self._kept += self._written()
        self._delete(KINDS[self.kind].outputs)
        self._create(KINDS[self.kind].outputs)
        return True

    def _create(self, names: Sequence[str]) -> None:
        for name in names:
            # Retry: a topic that was just deleted may still exist for a moment.
            until_answered(lambda name=name: self._create_one(f"{PREFIX}-{name}"), f"{name} is made")  # type: ignore[misc]

    def _create_one(self, topic: str) -> None:
        create(self.server.bootstrap, topic, PARTITIONS)

    def _delete(self, names: Sequence[str]) -> None:
        admin = AdminClient({"bootstrap.servers": self.server.bootstrap, **QUIET})
        topics = [f"{PREFIX}-{name}" for name in names]
        for deleted in admin.delete_topics(topics).values():
            deleted.result(PATIENCE_S)
        until(
            lambda: admin.list_topics(timeout=PATIENCE_S).topics.keys().isdisjoint(topics), "topics are gone"
        )

    def _is_settled(self, connection: Wire, topics: Sequence[str]) -> bool:
        """Whether a reader finds all committed records, at once or after the coordinator has ended a transaction."""
        sink = ExactlyOnceKafkaSink(self.server.bootstrap, query=query_name(self.kind), topic=topics[0])
        transactional_id = sink.transactional_id
        until(lambda: _state(connection, transactional_id) not in hanging.ENDING, "a transaction has ended")
        if _state(connection, transactional_id) == ONGOING:
            return True
        return not connection.open_transactions(lambda: connection.leaders(topics))


def _state(connection: Wire, transactional_id: str) -> str:
    """Return an empty text if nothing is known of the transaction."""
    last = connection.describe_transaction(transactional_id)
    return "" if last is None else last.state
