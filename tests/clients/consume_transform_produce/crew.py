"""Keeps three workers and their input going, kills workers and the broker, and freezes a worker for a while."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.clients.confluent import PATIENCE_S, consumer_of, create_topic, end_offsets
from tests.clients.consume_transform_produce.accounting import Output, find
from tests.clients.consume_transform_produce.worker import COMMITTED, FROZEN, STAGES
from tests.clients.transactions import READ_COMMITTED, READ_UNCOMMITTED, log_end, stable_end
from tests.support.kafka_server import Server
from tests.support.waiting import until

ROOT = Path(__file__).parents[3]
SOURCE, TARGET = "numbers", "squares"
SOURCE_PARTITIONS = 6
TARGET_PARTITIONS = 3
GROUP = "squarers"
SLOTS = 3
INPUTS_A_SECOND = 200
TRANSACTION_TIMEOUT_MS = 3_000
SESSION_MS = 1_500
FREEZE_S = 2.0
"""Longer than a session, shorter than a transaction may take."""
ANYWHERE = "anywhere"
LATE_S = 0.006
WORKER, BROKER, FREEZE = "worker", "broker", "freeze"
BROKERS_PART = 1 / 4
"""Of the kills; the others are workers'."""
FREEZES_A_KILL = 1 / 10


@dataclass(slots=True)
class Report:
    """The kills and the findings. kills: by victim, and by the stage that a worker last reported."""

    inputs: int = 0
    outputs: int = 0
    aborted_outputs: int = 0
    transactions: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    freezes: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    deaths: Counter[str] = field(default_factory=Counter)
    found: dict[str, list[str]] = field(default_factory=dict)

    @property
    def killed(self) -> int:
        return sum(self.kills.values())


class Worker:
    """A worker process and its messages."""

    def __init__(self, name: str, config: dict[str, Any], heard: threading.Condition) -> None:
        self.name = name
        self.lines: list[dict[str, str]] = []
        self.is_silent = False
        self._heard = heard
        argument = json.dumps({"name": name, **config})
        self._child = subprocess.Popen(
            [sys.executable, "-m", "tests.clients.consume_transform_produce.worker", argument],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self.errors = ""
        self._threads = [
            threading.Thread(target=work, daemon=True) for work in (self._listen, self._complaints)
        ]
        for thread in self._threads:
            thread.start()

    def _listen(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            if line.endswith("\n"):  # a killed process may leave half a line behind
                with self._heard:
                    self.lines.append(json.loads(line))
                    self._heard.notify_all()
        with self._heard:
            self.is_silent = True
            self._heard.notify_all()

    def _complaints(self) -> None:
        assert self._child.stderr is not None
        self.errors = self._child.stderr.read()

    @property
    def last_stage(self) -> str:
        return self.lines[-1]["stage"] if self.lines else "starting"

    @property
    def is_running(self) -> bool:
        return self._child.poll() is None

    def signal(self, number: signal.Signals) -> None:
        self._child.send_signal(number)

    def kill(self) -> None:
        """Kill the worker by SIGKILL, and read its last messages."""
        self._child.kill()
        self._child.wait()
        for thread in self._threads:
            thread.join()
        for pipe in (self._child.stdout, self._child.stderr):
            assert pipe is not None
            pipe.close()


class Feeder:
    """Writes numbers into the input topic, over its partitions in turn, until it is told to end."""

    def __init__(self, bootstrap: str) -> None:
        self.sent = 0
        self._ends = threading.Event()
        self._errors: list[KafkaError] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "log_level": 0,
                "reconnect.backoff.max.ms": 100,
                # By itself it would forget the broker while that is away, and start over.
                "metadata.recovery.strategy": "none",
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        began_s = time.monotonic()
        while not self._ends.wait(0.01):
            while self.sent < (time.monotonic() - began_s) * INPUTS_A_SECOND:
                partition = self.sent % SOURCE_PARTITIONS
                self._producer.produce(
                    SOURCE, str(self.sent), partition=partition, on_delivery=self._delivered
                )
                self.sent += 1
            self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._errors.append(error)

    def end(self) -> None:
        """Wait until every number is written. Raise AssertionError if one isn't."""
        self._ends.set()
        self._thread.join()
        left = self._producer.flush(PATIENCE_S)
        assert not self._errors, f"{len(self._errors)} of {self.sent}, the first: {self._errors[0]}"
        assert left == 0, f"{left} of {self.sent} aren't acknowledged"


class Crew:
    def __init__(self, server: Server, seed: int, say: Callable[[str], object] = lambda what: None) -> None:
        self.report = Report()
        self._server = server
        self._chance = random.Random(seed)
        self._say = say
        self._heard = threading.Condition()
        self._all: list[Worker] = []
        self._slots: list[Worker] = []

    @property
    def bootstrap(self) -> str:
        return self._server.bootstrap

    def run(self, kills: int) -> Report:
        """Kill so many times, let the rest be done, and look. AssertionError where it isn't done in time."""
        create_topic(self.bootstrap, SOURCE, partitions=SOURCE_PARTITIONS)
        create_topic(self.bootstrap, TARGET, partitions=TARGET_PARTITIONS)
        self._slots = [self._new_worker(slot) for slot in range(SLOTS)]
        feeder = Feeder(self.bootstrap)
        try:
            for what in self._plan(kills):
                while not self._strike(what):
                    pass  # who was to be killed had ended by itself
            feeder.end()
            self._say(f"{feeder.sent:,} inputs, {kills} kills; now the rest is worked off")
            self._work_off()
        finally:
            for worker in self._slots:
                worker.kill()
        self._judge(feeder.sent)
        return self.report

    # --- workers

    def _new_worker(self, slot: int) -> Worker:
        """The last slot's are dynamic members, with a transactional id of their own each time: what the one before
        left open ends by its timeout. The others are static members, who fence the one before."""
        name = (
            f"worker {slot} ({sum(1 for each in self._all if each.name.startswith(f'worker {slot} ')) + 1})"
        )
        dynamic = slot == SLOTS - 1
        config = {
            "bootstrap": self.bootstrap,
            "group": GROUP,
            "instance": None if dynamic else f"instance-{slot}",
            "transactional_id": name if dynamic else f"worker {slot}",
            "timeout_ms": TRANSACTION_TIMEOUT_MS,
            "session_ms": SESSION_MS,
            "source": SOURCE,
            "target": TARGET,
            "target_partitions": TARGET_PARTITIONS,
        }
        worker = Worker(name, config, self._heard)
        self._all.append(worker)
        return worker

    def _replace_dead(self) -> None:
        """A worker that can't go on, since it was fenced, makes room for the next."""
        for slot, worker in enumerate(self._slots):
            if not worker.is_running:
                worker.kill()
                # librdkafka tells of fatal errors there, such as that a static member is fenced.
                assert "Traceback" not in worker.errors, worker.errors
                self._slots[slot] = self._new_worker(slot)

    # --- what befalls them

    def _plan(self, kills: int) -> list[str]:
        brokers = round(kills * BROKERS_PART)
        plan = [BROKER] * brokers + [WORKER] * (kills - brokers) + [FREEZE] * round(kills * FREEZES_A_KILL)
        self._chance.shuffle(plan)
        return plan

    def _strike(self, what: str) -> bool:
        """Return whether there was a victim."""
        self._replace_dead()
        slot = self._chance.randrange(SLOTS)
        stage = self._chance.choice([*STAGES, ANYWHERE])
        late_s = self._chance.random() * LATE_S
        worker = self._slots[slot]
        if what == FREEZE:
            return self._freeze(worker)
        self._wait_for(worker, stage)
        time.sleep(late_s)
        if what == BROKER:
            self._server.kill()
            self._server.start()
            self.report.kills[BROKER] += 1
            self._say(f"kill {self.report.killed}: the broker")
        elif not worker.is_running:
            return False
        else:
            worker.kill()
            self.report.kills[f"{WORKER}, {worker.last_stage}"] += 1
            self._say(f"kill {self.report.killed}: {worker.name}, {worker.last_stage}")
            self._slots[slot] = self._new_worker(slot)
        return True

    def _freeze(self, worker: Worker) -> bool:
        """Freeze a worker, and let it continue its transaction when others have its partitions."""
        with self._heard:
            self._heard.wait_for(lambda: worker.lines or worker.is_silent, timeout=PATIENCE_S)
            worker.signal(signal.SIGUSR1)
            came = self._heard.wait_for(
                lambda: worker.last_stage == FROZEN or worker.is_silent, timeout=PATIENCE_S
            )
            assert came, f"{worker.name} has had nothing to do for {PATIENCE_S:g} s"
        if worker.last_stage != FROZEN:
            return False
        time.sleep(FREEZE_S)
        worker.signal(signal.SIGCONT)
        self.report.freezes += 1
        self._say(f"froze {worker.name} for {FREEZE_S:g} s")
        return True

    def _wait_for(self, worker: Worker, stage: str) -> None:
        """Wait until the worker reaches the stage, but not forever: it may have no partition, or be about to end."""
        if stage == ANYWHERE:
            time.sleep(self._chance.random() / 2)
            return
        with self._heard:
            heard = len(worker.lines)
            self._heard.wait_for(
                lambda: worker.is_silent or any(line["stage"] == stage for line in worker.lines[heard:]),
                timeout=5.0,
            )

    # --- afterwards

    def _work_off(self) -> None:
        ends = end_offsets(self.bootstrap, SOURCE, SOURCE_PARTITIONS)

        def done() -> bool:
            self._replace_dead()
            return self._committed() == ends

        until(done, f"the group has committed {ends}", timeout_s=60.0)

    def _committed(self) -> list[int]:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        asked = ConsumerGroupTopicPartitions(GROUP)
        found = admin.list_consumer_group_offsets([asked])[GROUP].result(PATIENCE_S)
        offsets = {each.partition: each.offset for each in found.topic_partitions}
        return [offsets.get(index, 0) for index in range(SOURCE_PARTITIONS)]

    def _judge(self, sent: int) -> None:
        inputs = {
            int(message.value()): f"{SOURCE}-{message.partition()} @ {message.offset()}"
            for message in self._read(SOURCE, SOURCE_PARTITIONS, READ_UNCOMMITTED)
        }
        assert sorted(inputs) == list(range(sent)), "the input itself has gaps"
        committed = [_output(message) for message in self._read(TARGET, TARGET_PARTITIONS, READ_COMMITTED)]
        written = [_output(message) for message in self._read(TARGET, TARGET_PARTITIONS, READ_UNCOMMITTED)]
        lines = [line for worker in self._all for line in worker.lines]
        acknowledged = {line["transaction"] for line in lines if line["stage"] == COMMITTED}
        report = self.report
        report.inputs, report.outputs = len(inputs), len(committed)
        report.aborted_outputs = len(written) - len(committed)
        report.transactions = len({output.transaction for output in written})
        report.refusals = Counter(line["refused"] for line in lines if "refused" in line)
        report.deaths = Counter(line["died"] for line in lines if "died" in line)
        report.found = find(inputs, committed, written, acknowledged)

    def _read(self, topic: str, partitions: int, isolation_level: str) -> Iterator[Message]:
        for partition in range(partitions):
            with contextlib.ExitStack() as stack:
                consumer = stack.enter_context(closing(self._reader(isolation_level)))
                self._wait_until_at_rest(topic, partition)
                consumer.assign([TopicPartition(topic, partition, 0)])
                while True:
                    message = consumer.poll(PATIENCE_S)
                    assert message is not None, f"neither a record nor the end of {topic}-{partition} came"
                    if message.error() is not None:
                        assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                        break
                    yield message

    def _reader(self, isolation_level: str) -> Any:
        return consumer_of(
            self.bootstrap, **{"isolation.level": isolation_level, "enable.partition.eof": True}
        )

    def _wait_until_at_rest(self, topic: str, partition: int) -> None:
        def at_rest() -> bool:
            stable = stable_end(self.bootstrap, topic, partition=partition)
            return stable == log_end(self.bootstrap, topic, partition=partition)

        until(at_rest, f"nothing is open in {topic}-{partition}")


def _output(message: Message) -> Output:
    place = f"{message.topic()}-{message.partition()} @ {message.offset()}"
    return Output(**json.loads(message.value()), place=place)
