"""What goes wrong between a transaction and many tasks: each hazard is made to happen, and the output stays right.

`Interference` stands between the driver and the broker: a test says what happens ahead of a request of the driver's,
in its place or behind it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="needs pyspark, of the extra `spark`")

import pyarrow as pa

from barnabas.spark import ExactlyOnceKafkaSink, arrow_batches
from barnabas.spark import errors as codes
from barnabas.spark.errors import (
    BatchFailedError,
    MarkerError,
    NoAnswerError,
    QueryFencedError,
    ResponseError,
    TransactionTimeoutError,
)
from barnabas.spark.wire import Identity, Wire
from tests.spark.outputs import create, read, values, wait_for_markers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Name = Callable[[str], str]
ROWS = 300
TIMEOUT_MS = 30_000


@dataclass
class Interference:
    """identities: what InitProducerId handed out to the sink, one a try. steps: by the name of the driver's request."""

    identities: list[Identity] = field(default_factory=list)
    steps: dict[str, Callable[..., Any]] = field(default_factory=dict)

    def once(self, request: str, step: Callable[[Callable[[], Any]], Any]) -> None:
        """`step` takes the place of the next such request, which it is given to make or not."""

        def only_once(make: Callable[[], Any]) -> Any:
            del self.steps[request]
            return step(make)

        self.steps[request] = only_once


@pytest.fixture
def interference(monkeypatch: pytest.MonkeyPatch) -> Interference:
    one = Interference()

    def wrap(request: str) -> None:
        original = getattr(Wire, request)

        def call(connection: Wire, *arguments: Any, **options: Any) -> Any:
            def make() -> Any:
                return original(connection, *arguments, **options)

            step = one.steps.get(request)
            result = make() if step is None else step(make)
            if request == "init_producer_id":
                one.identities.append(result)
            return result

        monkeypatch.setattr(Wire, request, call)

    for request in ("init_producer_id", "add_partitions", "open_transactions", "end_transaction"):
        wrap(request)
    return one


@pytest.fixture
def other(bootstrap: str) -> Iterator[Wire]:
    """A connection of somebody else."""
    connection = Wire(bootstrap, {}, TIMEOUT_MS)
    yield connection
    connection.close()


def rows(spark: SparkSession, text: str = "", count: int = ROWS) -> DataFrame:
    return spark.range(0, count, 1, 2).selectExpr(f"concat('{text}', cast(id as string)) value")


def texts(text: str = "", count: int = ROWS) -> list[str]:
    return sorted(f"{text}{number}" for number in range(count))


def write_raw(
    connection: Wire,
    topic: str,
    transactional_id: str,
    identity: Identity,
    content: list[str],
    sequence: int = 0,
) -> int:
    """Send these to partition 0, as a task would; the log append time of the answer."""
    connection.connect()
    columns = arrow_batches.Columns(
        pa.array([b"k"] * len(content)), pa.array([one.encode() for one in content], pa.binary()), None
    )
    (batch,) = arrow_batches.build(columns, int(time.time() * 1000), 1 << 20)
    arrow_batches.stamp(batch, identity.producer_id, identity.epoch, sequence)
    leader = connection.leaders([topic])[topic][0]
    return connection.append(leader, transactional_id, topic, 0, *batch.pieces).log_append_time_ms


def code_of(act: Callable[[], Any]) -> int:
    with pytest.raises(ResponseError) as caught:
        act()
    return caught.value.code


def test_a_late_writer_of_an_earlier_batch_does_not_write_into_a_later_one(
    spark: SparkSession, bootstrap: str, name: Name, interference: Interference, other: Wire
) -> None:
    topic = create(bootstrap, name("out"), 2)
    sink = ExactlyOnceKafkaSink(bootstrap, query=name("q"), topic=topic)
    sink.write(rows(spark, "a"), 0)
    late = interference.identities[0]

    def write_late() -> int:
        return code_of(lambda: write_raw(other, topic, sink.transactional_id, late, ["late"], ROWS // 2))

    wait_for_markers(other, topic)
    after_the_end = write_late()
    while_the_next_runs: list[int] = []

    def step(make: Callable[[], Any]) -> None:
        make()
        while_the_next_runs.append(write_late())

    interference.once("add_partitions", step)
    sink.write(rows(spark, "b"), 1)
    assert after_the_end in (codes.INVALID_PRODUCER_EPOCH, 48)  # INVALID_TXN_STATE
    assert while_the_next_runs == [codes.INVALID_PRODUCER_EPOCH]
    assert values(bootstrap, topic) == sorted(texts("a") + texts("b"))


def test_a_stale_end_of_an_earlier_transaction_ends_no_later_one(
    spark: SparkSession, bootstrap: str, name: Name, interference: Interference, other: Wire
) -> None:
    topic = create(bootstrap, name("out"), 2)
    sink = ExactlyOnceKafkaSink(bootstrap, query=name("q"), topic=topic)
    sink.write(rows(spark, "a"), 0)
    found: list[Any] = []

    def step(make: Callable[[], Any]) -> None:
        # All of batch 1 is written; a commit of batch 0, sent again by some network, arrives now.
        stale = interference.identities[0]
        end = Wire.end_transaction.__get__(other)
        found.append(code_of(lambda: end(sink.transactional_id, stale, commit=True)))
        found.append(values(bootstrap, topic))
        make()

    interference.once("end_transaction", step)
    sink.write(rows(spark, "b"), 1)
    assert found == [codes.PRODUCER_FENCED, texts("a")]
    assert values(bootstrap, topic) == sorted(texts("a") + texts("b"))


@pytest.mark.parametrize(
    "content", [["other"] * ROWS, ["other"] * 7], ids=["same sequences", "other boundaries"]
)
def test_a_first_attempts_records_under_the_same_sequences_fail_the_try(
    spark: SparkSession,
    bootstrap: str,
    name: Name,
    interference: Interference,
    other: Wire,
    content: list[str],
) -> None:
    topic = create(bootstrap, name("out"), 1)
    sink = ExactlyOnceKafkaSink(bootstrap, query=name("q"), topic=topic)
    answers: list[int] = []

    def step(make: Callable[[], Any]) -> None:
        make()
        identity = interference.identities[0]
        answers.append(write_raw(other, topic, sink.transactional_id, identity, content))

    interference.once("add_partitions", step)
    report = sink.write(rows(spark).coalesce(1), 0)
    assert answers == [-1]
    assert report.tries == 2
    assert values(bootstrap, topic) == texts()


def test_records_that_no_task_reported_fail_the_try(
    spark: SparkSession, bootstrap: str, name: Name, interference: Interference, other: Wire
) -> None:
    topic = create(bootstrap, name("out"), 2)
    sink = ExactlyOnceKafkaSink(bootstrap, query=name("q"), topic=topic)

    def step(make: Callable[[], Any]) -> None:
        # As an attempt would that Spark took for lost, into a partition that no other task comes to.
        make()
        write_raw(other, topic, sink.transactional_id, interference.identities[0], ["stray"])

    interference.once("add_partitions", step)
    report = sink.write(rows(spark).selectExpr("value", "1 partition"), 0)
    assert report.tries == 2
    assert values(bootstrap, topic) == texts()


def test_a_broker_answers_a_duplicate_with_the_time_of_the_original(
    bootstrap: str, name: Name, other: Wire
) -> None:
    topic, transactional_id = create(bootstrap, name("out"), 1), name("id")
    identity = other.init_producer_id(transactional_id, 10_000)
    other.add_partitions(transactional_id, identity, {topic: [0]})
    times = [write_raw(other, topic, transactional_id, identity, [text] * 3) for text in ("one", "two")]
    assert times[0] == -1
    assert times[1] > 0
    other.end_transaction(transactional_id, identity, commit=True)
    assert values(bootstrap, topic) == ["one"] * 3


def test_another_querys_open_transaction_hides_no_marker(
    spark: SparkSession, bootstrap: str, name: Name, interference: Interference
) -> None:
    topic, query = create(bootstrap, name("out"), 2), name("q")
    sink = ExactlyOnceKafkaSink(bootstrap, query=query, topic=topic)
    beside = ExactlyOnceKafkaSink(bootstrap, query=name("beside"), topic=create(bootstrap, name("else"), 2))
    reports: list[Any] = []

    def step(make: Callable[[], Any]) -> None:
        # The other query has written its batch and its marker, and not committed yet.
        reports.append(sink.write(rows(spark), 0))
        reports.append(ExactlyOnceKafkaSink(bootstrap, query=query, topic=topic).write(rows(spark), 0))
        make()

    interference.once("end_transaction", step)
    beside.write(rows(spark), 0)
    assert [report.skipped for report in reports] == [False, True]
    assert values(bootstrap, topic) == texts()


def test_a_strangers_open_transaction_over_the_marker_writes_nothing_twice(
    spark: SparkSession, bootstrap: str, name: Name, interference: Interference, other: Wire
) -> None:
    topic, stranger = create(bootstrap, name("out"), 2), name("stranger")
    sink = ExactlyOnceKafkaSink(bootstrap, query=name("q"), topic=topic, request_timeout_ms=2_000)
    identity = other.init_producer_id(stranger, 60_000)
    requests = {
        request: getattr(Wire, request).__get__(other) for request in ("add_partitions", "end_transaction")
    }

    def step(make: Callable[[], Any]) -> None:
        make()
        requests["add_partitions"](stranger, identity, {sink.marker_topic: [0]})
        write_raw(other, sink.marker_topic, stranger, identity, ["strange"])

    interference.once("add_partitions", step)
    sink.write(rows(spark), 0)  # its marker, committed, lies behind what the stranger has open
    with pytest.raises(MarkerError, match="a transaction other than this query's has been open"):
        sink.write(rows(spark), 0)
    requests["end_transaction"](stranger, identity, commit=False)
    assert sink.write(rows(spark), 0).skipped
    assert values(bootstrap, topic) == texts()


def test_a_commit_whose_answer_was_lost_is_found_by_its_marker(
    spark: SparkSession, bootstrap: str, name: Name, interference: Interference
) -> None:
    topic = create(bootstrap, name("out"), 2)

    def step(make: Callable[[], Any]) -> None:
        make()
        raise NoAnswerError("lost")

    interference.once("end_transaction", step)
    report = ExactlyOnceKafkaSink(bootstrap, query=name("q"), topic=topic).write(rows(spark), 0)
    assert (report.skipped, report.tries) == (True, 2)
    assert values(bootstrap, topic) == texts()


def test_a_commit_that_was_lost_itself_is_done_again(
    spark: SparkSession, bootstrap: str, name: Name, interference: Interference
) -> None:
    topic = create(bootstrap, name("out"), 2)

    def step(make: Callable[[], Any]) -> None:
        raise NoAnswerError("lost")

    interference.once("end_transaction", step)
    report = ExactlyOnceKafkaSink(bootstrap, query=name("q"), topic=topic).write(rows(spark), 0)
    assert (report.skipped, report.tries) == (False, 2)
    assert values(bootstrap, topic) == texts()
    assert len(read(bootstrap, topic, "read_uncommitted")) == 2 * ROWS


def test_a_batch_that_no_try_could_commit_is_aborted_at_once(
    spark: SparkSession, bootstrap: str, name: Name, interference: Interference
) -> None:
    topic = create(bootstrap, name("out"), 2)
    sink = ExactlyOnceKafkaSink(bootstrap, query=name("q"), topic=topic, max_tries=1)

    def step(make: Callable[[], Any]) -> None:
        raise NoAnswerError("lost")

    interference.once("end_transaction", step)
    with pytest.raises(BatchFailedError, match="lost"):
        sink.write(rows(spark, "a"), 0)
    # A transaction left open would hold this back.
    ExactlyOnceKafkaSink(bootstrap, query=name("beside"), topic=topic).write(rows(spark, "b"), 0)
    assert values(bootstrap, topic) == texts("b")


def test_a_query_that_another_one_fenced_fails_and_does_not_fence_back(
    spark: SparkSession, bootstrap: str, name: Name, interference: Interference
) -> None:
    topic, query = create(bootstrap, name("out"), 2), name("q")
    sink = ExactlyOnceKafkaSink(bootstrap, query=query, topic=topic)

    def step(make: Callable[[], Any]) -> None:
        # The other one is a batch ahead, so that it doesn't find this one's marker.
        ExactlyOnceKafkaSink(bootstrap, query=query, topic=topic).write(rows(spark, "b"), 1)
        make()

    interference.once("end_transaction", step)
    with pytest.raises(QueryFencedError, match=f"another query runs under the name '{query}'"):
        sink.write(rows(spark, "a"), 0)
    assert len(interference.identities) == 2
    assert values(bootstrap, topic) == texts("b")


@pytest.mark.parametrize("request_", ["open_transactions", "end_transaction"])
def test_a_batch_that_outlasts_its_transaction_names_both_times(
    spark: SparkSession, bootstrap: str, name: Name, interference: Interference, other: Wire, request_: str
) -> None:
    """Be it that the sink hears of it from its partitions, which hold nothing of the batch any more."""
    topic = create(bootstrap, name("out"), 2)
    sink = ExactlyOnceKafkaSink(
        bootstrap, query=name("q"), topic=topic, transaction_timeout_ms=50, max_tries=1
    )

    def step(make: Callable[[], Any]) -> Any:
        identity = interference.identities[0]
        deadline_s = time.monotonic() + 60
        while time.monotonic() < deadline_s:
            # Until the broker has looked for transactions that are past their time, which it does now and then.
            try:
                other.commit_offsets(sink.transactional_id, identity, name("group"), {topic: {0: 1}})
            except ResponseError:
                break
            time.sleep(0.05)
        return make()

    def add_partitions(make: Callable[[], Any]) -> None:
        make()
        interference.once(request_, step)

    interference.once("add_partitions", add_partitions)
    with pytest.raises(BatchFailedError, match=r"after \d+ ms, with transaction_timeout_ms=50") as caught:
        sink.write(rows(spark), 0)
    assert isinstance(caught.value.__cause__, TransactionTimeoutError)
    assert values(bootstrap, topic) == []


def test_an_identity_that_a_request_of_our_own_fenced_costs_a_try(
    spark: SparkSession, bootstrap: str, name: Name, interference: Interference, other: Wire
) -> None:
    topic = create(bootstrap, name("out"), 2)
    sink = ExactlyOnceKafkaSink(bootstrap, query=name("q"), topic=topic)
    init = Wire.init_producer_id.__get__(other)

    interference.once("init_producer_id", lambda make: make()._replace(contested=True))

    def step(make: Callable[[], Any]) -> None:
        init(sink.transactional_id, 60_000)  # the request that went unanswered arrives at last
        make()

    interference.once("end_transaction", step)
    assert sink.write(rows(spark), 0).tries == 2
    assert values(bootstrap, topic) == texts()
