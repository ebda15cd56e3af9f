"""What costs a try, what ends a batch at once, and what is given up; without Spark or a broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs pyspark, of the extra `spark`")

from pyspark.sql.types import StringType, StructField, StructType

from barnabas.spark import ExactlyOnceKafkaSink, marker, transaction, wire_connection
from barnabas.spark.errors import (
    BatchFailedError,
    ConnectError,
    QueryFencedError,
    RowError,
    SourceOffsetsError,
    StreamingFrameError,
    TopicRefusedError,
    TryFailedError,
    UnreachableError,
)
from barnabas.spark.plan import BatchReport
from barnabas.spark.stream import LoggedOffsets, Stream
from barnabas.spark.transaction import RecordForm, Work
from barnabas.spark.wire import Wire

DONE = BatchReport(0, False, 1, 0, 0, 0.0, 0.0, 0.0, 0.0, ())


class Connection:
    """Counts the epochs that are taken: one more than the tries had gives the batch up."""

    timeout_ms = 0

    def __init__(self) -> None:
        self.epochs = 0

    def describe_transaction(self, transactional_id: str) -> None:
        """Nothing is known of the id."""

    def init_producer_id(self, transactional_id: str, timeout_ms: int) -> None:
        self.epochs += 1


def work(**given: Any) -> Work:
    settings = ExactlyOnceKafkaSink(
        "127.0.0.1:1", query="q", topic="t", group=given.pop("group", None)
    ).settings
    parts: dict[str, Any] = {"connection": Connection(), "rows": None, "stream": None, "topics": ("t",)}
    return Work(settings=settings, form=RecordForm({}), batch_id=4, **(parts | given))


def tries(monkeypatch: pytest.MonkeyPatch, *outcomes: BaseException | BatchReport) -> list[int]:
    """The numbers of the tries that are made, with these outcomes."""
    made: list[int] = []

    def attempt(work: Work, number: int) -> BatchReport:
        made.append(number)
        outcome = outcomes[number - 1]
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    monkeypatch.setattr(transaction, "_try", attempt)
    monkeypatch.setattr(transaction, "FIRST_PAUSE_S", 0.0)
    return made


def stream(active: bool = True, **given: Any) -> Stream:
    execution = SimpleNamespace(isActive=lambda: active, **given)
    return Stream("id", None, execution)


def test_a_running_querys_batch_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = tries(monkeypatch, TryFailedError("once"), DONE)
    assert transaction._until_it_holds(work(stream=stream())) is DONE
    assert made == [1, 2]


def test_a_stopped_querys_batch_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = tries(monkeypatch, TryFailedError("cancelled"), DONE)
    one = work(stream=stream(active=False))
    with pytest.raises(BatchFailedError, match=r"failed 1 time\(s\)"):
        transaction._until_it_holds(one)
    assert made == [1]
    assert one.connection.epochs == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("error", [KeyError("config"), KeyboardInterrupt(), RowError("null")])
def test_an_error_without_a_retry_is_given_up_and_raised_as_it_is(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    made = tries(monkeypatch, error, DONE)
    one = work()
    with pytest.raises(type(error)) as caught:
        transaction._until_it_holds(one)
    assert caught.value is error
    assert made == [1]
    assert one.connection.epochs == 1  # type: ignore[attr-defined]


def test_a_query_that_fenced_this_one_is_not_fenced_in_return(monkeypatch: pytest.MonkeyPatch) -> None:
    tries(monkeypatch, QueryFencedError("by another"))
    one = work()
    with pytest.raises(QueryFencedError):
        transaction._until_it_holds(one)
    assert one.connection.epochs == 0  # type: ignore[attr-defined]


def test_a_broker_that_does_not_answer_hides_no_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(transactional_id: str, timeout_ms: int) -> None:
        raise ValueError("in the midst of an answer")

    tries(monkeypatch, KeyError("config"))
    with pytest.raises(KeyError):
        transaction._until_it_holds(work(connection=SimpleNamespace(init_producer_id=refuse)))


def test_a_checkpoint_that_could_not_be_read_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Any] = [OSError("the disk is away"), LoggedOffsets("0", 'v1\n{}\n{"in": {"0": 5}}')]

    def logged_offsets(self: Stream, batch_id: int) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(Stream, "logged_offsets", logged_offsets)
    monkeypatch.setattr(transaction, "FIRST_PAUSE_S", 0.0)
    stop = RowError("far enough")
    monkeypatch.setattr(marker, "ensure_topic", lambda *given: (_ for _ in ()).throw(stop))
    one = work(stream=stream(), group="g")
    with pytest.raises(RowError, match="far enough"):
        transaction._until_it_holds(one)
    assert one.offsets == {"in": {0: 5}}


def test_a_checkpoint_without_offsets_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def logged_offsets(self: Stream, batch_id: int) -> Any:
        raise SourceOffsetsError("no source of Kafka's")

    monkeypatch.setattr(Stream, "logged_offsets", logged_offsets)
    with pytest.raises(SourceOffsetsError):
        transaction._until_it_holds(work(stream=stream(), group="g"))


def test_a_topic_that_is_named_twice_is_one() -> None:
    assert ExactlyOnceKafkaSink("127.0.0.1:1", query="q", topics=["a", "b", "a"]).settings.topics == (
        "a",
        "b",
    )


def test_spark_connect_is_refused_by_name() -> None:
    frame: Any = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})()
    with pytest.raises(ConnectError, match="Spark Connect"):
        ExactlyOnceKafkaSink("127.0.0.1:1", query="q", topic="t").write(frame, 0)


def batch(**given: Any) -> Any:
    """A frame of one column, and no session that could compute it."""
    conf = SimpleNamespace(get=lambda name, default: default)
    session = SimpleNamespace(conf=conf, sparkContext=SimpleNamespace())
    schema = StructType([StructField("value", StringType())])
    return SimpleNamespace(**{"schema": schema, "sparkSession": session, "isStreaming": False} | given)


def test_a_streaming_frame_is_refused_before_anything_is_tried() -> None:
    sink = ExactlyOnceKafkaSink("127.0.0.1:1", query="q", topic="t")
    with pytest.raises(StreamingFrameError, match=r"writeStream\.foreachBatch\(sink\)"):
        sink.write(batch(isStreaming=True), 0)
    sink.close()


def test_an_address_where_nobody_listens_is_named_once_and_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = tries(monkeypatch)
    monkeypatch.setattr(wire_connection, "FIRST_CONTACT_MS", 200)
    sink = ExactlyOnceKafkaSink("127.0.0.1:1", query="q", topic="t", request_timeout_ms=600_000)
    with pytest.raises(UnreachableError, match=r"no broker can be reached at 127\.0\.0\.1:1: .*ECONNREFUSED"):
        sink.write(batch(), 0, by_hand=True)
    sink.close()
    assert made == []
    assert [record.getMessage().partition(": ")[0] for record in caplog.records] == [
        "a broker of 127.0.0.1:1 doesn't answer; retrying for up to 0.2 s"
    ]


def test_a_broker_that_was_met_is_waited_for_as_long_as_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    deadlines: list[float] = []
    monkeypatch.setattr(wire_connection.time, "monotonic", lambda: 1000.0)
    wire = Wire("127.0.0.1:1", {}, 600_000)
    monkeypatch.setattr(wire, "connect", deadlines.append)
    wire.meet()
    wire.meet()
    assert deadlines == [1000.0 + wire_connection.FIRST_CONTACT_MS / 1000]


def test_a_topic_of_a_querys_marker_that_a_row_names_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction.job, "topics_of", lambda rows: ["out", "__barnabas-spark-q"])
    with pytest.raises(TopicRefusedError, match="holds the marker of the query 'q'") as raised:
        transaction._find_out(work(topics=()))
    assert not raised.value.retried
