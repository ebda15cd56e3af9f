"""The audit of topics on a broker, with what is known to be in them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from barnabas.spark.audit import __main__ as command
from barnabas.spark.audit import audit
from barnabas.spark.audit.__main__ import as_table
from barnabas.spark.wire import LATEST, READ_COMMITTED, Wire
from barnabas.spark.wire_log import RawLog
from tests.spark.topics import Transactions, create_topic, delete_records, produce

Names = Callable[[str], str]


def row_of(spark: SparkSession, bootstrap: str, topic: str, **options: object) -> dict[str, object]:
    """What is not 0 or null of the only partition's row, but for its name and bounds."""
    (row,) = audit(spark, bootstrap, [topic], **options).collect()  # type: ignore[arg-type]
    found = row.asDict()
    counted = found["records"] + sum(
        found[name]
        for name in (
            "marker_offsets",
            "aborted_records",
            "open_records",
            "compacted_offsets",
            "unexplained_offsets",
        )
    )
    assert counted == found["end_offset"] - found["start_offset"]
    assert found["stable_end_offset"] == last_stable_offset(bootstrap, topic)
    told = {"topic", "partition", "start_offset", "end_offset"}
    return {name: value for name, value in found.items() if value and name not in told}


def last_stable_offset(bootstrap: str, topic: str) -> int:
    """As the broker has it."""
    connection = Wire(bootstrap, {}, 30_000)
    leader = connection.leaders([topic])[topic][0]
    found = connection.offset(topic, 0, leader, LATEST, READ_COMMITTED)
    connection.close()
    return found


@pytest.mark.parametrize("largest_range", [None, 3])
def test_transactions_are_counted_by_how_they_ended_wherever_ranges_begin(
    spark: SparkSession, bootstrap: str, name: Names, largest_range: int | None
) -> None:
    topic = create_topic(bootstrap, name("audited"))
    produce(bootstrap, topic, ["plain"] * 3)
    one, other = Transactions(bootstrap, name("one")), Transactions(bootstrap, name("other"))
    one.committed(topic, ["1"] * 10)
    other.begin(topic, ["2"] * 2)
    one.aborted(topic, ["3"] * 5)
    other.write(topic, ["4"] * 2)
    other.abort()
    other.begin(topic, ["open"] * 4)
    one.committed(topic, ["5"])

    row = row_of(spark, bootstrap, topic, largest_range=largest_range)

    assert row == {
        "records": 14,
        "transactions_committed": 2,
        "transactions_aborted": 2,
        "transactions_open": 1,
        "marker_offsets": 4,
        "aborted_records": 9,
        "open_records": 4,
        "stable_end_offset": 25,
    }
    other.abort()


def test_where_retention_took_the_start_only_the_rest_is_counted(
    spark: SparkSession, bootstrap: str, name: Names
) -> None:
    topic = create_topic(bootstrap, name("cut"))
    transactions = Transactions(bootstrap, name("cut"))
    transactions.aborted(topic, ["a"] * 10)
    transactions.committed(topic, ["b"] * 10)
    delete_records(bootstrap, topic, {0: 7})

    row = row_of(spark, bootstrap, topic)

    assert row == {
        "records": 10,
        "transactions_committed": 1,
        "transactions_aborted": 1,
        "marker_offsets": 2,
        "aborted_records": 3,
        "stable_end_offset": 22,
    }


def test_a_transaction_is_open_though_retention_took_all_its_records(
    spark: SparkSession, bootstrap: str, name: Names
) -> None:
    topic = create_topic(bootstrap, name("begun"))
    transactions = Transactions(bootstrap, name("begun"))
    transactions.begin(topic, ["a"] * 10)
    produce(bootstrap, topic, ["b"])
    delete_records(bootstrap, topic, {0: 10})

    assert row_of(spark, bootstrap, topic) == {
        "records": 1,
        "transactions_open": 1,
        "stable_end_offset": 10,
    }
    transactions.commit()
    assert row_of(spark, bootstrap, topic) == {
        "records": 1,
        "transactions_committed": 1,
        "marker_offsets": 1,
        "stable_end_offset": 12,
    }


def test_an_open_transaction_whose_start_retention_took_hides_the_rest(
    spark: SparkSession, bootstrap: str, name: Names
) -> None:
    topic = create_topic(bootstrap, name("half"))
    transactions = Transactions(bootstrap, name("half"))
    transactions.begin(topic, ["a"] * 2)
    produce(bootstrap, topic, ["b"] * 3)
    transactions.write(topic, ["c"] * 4)
    delete_records(bootstrap, topic, {0: 2})

    assert row_of(spark, bootstrap, topic, key=["value"]) == {
        "records": 3,
        "transactions_open": 1,
        "open_records": 4,
        # And so no duplicates: there is nothing that a reader would see twice.
        "stable_end_offset": 2,
    }
    transactions.commit()
    transactions.begin(topic, ["d"])
    assert row_of(spark, bootstrap, topic, key=["value"]) == {
        "records": 7,
        "transactions_committed": 1,
        "transactions_open": 1,
        "open_records": 1,
        "marker_offsets": 1,
        "stable_end_offset": 10,
        "duplicates": 5,
    }
    transactions.abort()


@pytest.mark.parametrize("largest_range", [None, 1])
def test_two_transactions_begun_before_the_start_each_stay_open_until_their_own_marker(
    spark: SparkSession, bootstrap: str, name: Names, largest_range: int | None
) -> None:
    topic = create_topic(bootstrap, name("two"))
    one, other = Transactions(bootstrap, name("one")), Transactions(bootstrap, name("other"))
    one.begin(topic, ["a"])
    other.begin(topic, ["b"])
    delete_records(bootstrap, topic, {0: 2})
    one.write(topic, ["c"])
    one.commit()
    one.begin(topic, ["d"])

    assert row_of(spark, bootstrap, topic, largest_range=largest_range) == {
        "records": 1,
        "transactions_committed": 1,
        "transactions_open": 2,
        "open_records": 1,
        "marker_offsets": 1,
        "stable_end_offset": 2,
    }
    one.abort()
    other.abort()


def test_a_transaction_that_ends_while_bounds_are_asked_for_is_open_within_them(
    bootstrap: str, name: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = create_topic(bootstrap, name("ends"))
    transactions = Transactions(bootstrap, name("ends"))
    transactions.begin(topic, ["a"])
    delete_records(bootstrap, topic, {0: 1})
    log = RawLog(bootstrap, {}, 30_000)
    ask, asked = log.offset, []

    def offset(topic: str, partition: int, leader: int, timestamp: int, isolation: int) -> int:
        found = ask(topic, partition, leader, timestamp, isolation)
        asked.append(timestamp)
        if asked == [LATEST]:
            transactions.commit()
        return found

    monkeypatch.setattr(log, "offset", offset)
    (bounds,) = log.bounds([topic])
    log.close()
    assert bounds.end_offset == 1  # its marker is at 1
    assert len(bounds.begun_before) == 1


def test_duplicates_are_counted_by_expressions_among_committed_records(
    spark: SparkSession, bootstrap: str, name: Names
) -> None:
    topic = create_topic(bootstrap, name("doubled"), partitions=2)
    for partition in range(2):
        produce(bootstrap, topic, ['{"id": 1, "n": 1}', '{"id": 2, "n": 2}'], partition=partition, key="k")
    produce(bootstrap, topic, ['{"id": 2, "n": 3}', '{"n": 4}', '{"n": 4}'], key="k")
    Transactions(bootstrap, name("doubled")).aborted(topic, ['{"id": 1, "n": 1}'])

    by_id = audit(spark, bootstrap, [topic], key=["get_json_object(CAST(value AS STRING), '$.id')"]).collect()
    by_both = audit(spark, bootstrap, [topic], key=["key", "value"]).collect()

    assert [row.duplicates for row in by_id] == [1, 2]
    assert [row.duplicates for row in by_both] == [1, 2]


def test_a_key_that_spark_can_not_make_sense_of_is_refused_before_anything_is_read(
    spark: SparkSession,
) -> None:
    with pytest.raises(AnalysisException, match="no_such_column"):
        audit(spark, "127.0.0.1:1", ["t"], key=["no_such_column"])


def test_the_table_has_a_line_for_each_partition_and_is_written_as_parquet(
    spark: SparkSession, bootstrap: str, name: Names, tmp_path: Path
) -> None:
    topics = [create_topic(bootstrap, name("b"), partitions=2), create_topic(bootstrap, name("a"))]
    produce(bootstrap, topics[0], ["v"] * 1_234, partition=1)

    table = audit(spark, bootstrap, topics)
    table.write.parquet(str(tmp_path / "table"))
    rows = spark.read.parquet(str(tmp_path / "table")).orderBy("topic", "partition").collect()

    assert rows == table.collect()
    lines = as_table(rows).splitlines()
    assert [line.split()[:5] for line in lines[1:-1]] == [
        [topics[1], "0", "0", "0", "0"],
        [topics[0], "0", "0", "0", "0"],
        [topics[0], "1", "0", "1,234", "1,234"],
    ]
    assert lines[-1].split()[0] == "1,234"


def test_the_commands_status_distinguishes_findings_from_uncountable_topics(
    spark: SparkSession,
    barnabas_bootstrap: str,
    name: Names,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(command.connector, "session", lambda *arguments: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    topic = create_topic(barnabas_bootstrap, name("t"))
    produce(barnabas_bootstrap, topic, ["1", "2"], key="k")
    arguments = [barnabas_bootstrap, topic, "--parquet", str(tmp_path / "table")]

    assert command.main([*arguments, "--key", "value"]) == 0
    assert (tmp_path / "table" / "_SUCCESS").exists()
    assert command.main([*arguments[:2], "--key", "key"]) == 1
    assert capsys.readouterr().err == ""

    assert command.main([*arguments[:2], "--key", "no_such_column"]) == 2
    assert command.main([*arguments[:2], "--key", "key", "--option", "security.protocol=NONE"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "no_such_column" in lines[0]
    assert "security.protocol" in lines[1]
