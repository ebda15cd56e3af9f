"""Keyed rows on their way to the tasks that write them: Kafka's hash as a column of Spark's, and who is sent what."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="needs pyspark, of the extra `spark`")

from barnabas.spark import ExactlyOnceKafkaSink
from barnabas.spark import job as key_hashes
from barnabas.spark.arrow_batches import murmur2_of
from barnabas.spark.errors import RowError, UnknownTopicError
from barnabas.spark.job import salts, spark_hash, to_owners
from tests.spark.outputs import create, read, values
from tests.spark.plans import plan

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

Name = Callable[[str], str]
KEYED = ["cast(id % 97 as string) key", "cast(id as string) value"]
# Of every length up to some words, with bytes that Java's sign would spoil, and one past what is hashed together.
KEYS = [bytes((7 * number + 200 * place) % 256 for place in range(number)) for number in range(40)] + [
    b"\xff" * 300
]


@pytest.fixture
def in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where Kafka's client is not on Spark's class path."""
    monkeypatch.setattr(key_hashes, "CLASS", "org.apache.kafka.NoSuchClass")


@pytest.fixture
def in_java(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(key: Column) -> Column:
        raise AssertionError("Spark can't call Kafka's client")

    monkeypatch.setattr(key_hashes, "in_python", refuse)


@pytest.fixture(params=["in_java", "in_python"])
def either(request: pytest.FixtureRequest) -> None:
    request.getfixturevalue(request.param)


def tasks_of(rows: DataFrame) -> list[Any]:
    return rows.selectExpr("*", "spark_partition_id() task").collect()


@pytest.mark.parametrize("tasks", [1, 2, 3, 7, 16])
def test_each_salt_lands_in_its_task(tasks: int) -> None:
    assert [spark_hash(salt) % tasks for salt in salts(tasks)] == list(range(tasks))


def test_the_hash_of_salts_equals_sparks(spark: SparkSession) -> None:
    rows = spark.range(-5, 200).selectExpr("cast(id as int) number", "hash(cast(id as int)) hash").collect()
    assert [spark_hash(row.number) for row in rows] == [row.hash for row in rows]


@pytest.mark.usefixtures("either")
def test_keys_are_hashed_as_kafka_does(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(key,) for key in [*KEYS, None]], "key binary")
    found = rows.select("key", key_hashes.hashes(spark, rows["key"]).alias("hash")).collect()
    hashes = {bytes(row.key): row.hash & 0xFFFFFFFF for row in found if row.key is not None}
    assert hashes == {key: murmur2_of(key) for key in KEYS}
    assert [row.hash for row in found if row.key is None] == [None]


@pytest.mark.usefixtures("either")
def test_text_is_hashed_as_utf_8(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("ключ 😀",)], "key string")
    ((found,),) = rows.select(key_hashes.hashes(spark, rows["key"])).collect()
    assert found & 0xFFFFFFFF == murmur2_of("ключ 😀".encode())


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("batch_id", [0, 1_763_000_000_000_000_001])
def test_each_row_comes_to_the_owner_of_its_partition(spark: SparkSession, batch_id: int) -> None:
    told = plan(3, batch_id, t=7)
    rows = spark.range(0, 300, 1, 2).selectExpr(
        "cast(id as string) key", "if(id % 2 = 0, int(id % 7), null) partition"
    )
    for row in tasks_of(to_owners(rows, told)):
        by_key = (murmur2_of(row.key.encode()) & 0x7FFFFFFF) % 7
        assert row.task == told.owner_of(by_key if row.partition is None else row.partition)


def test_each_topics_own_number_of_partitions_counts(spark: SparkSession) -> None:
    told = plan(3, topic=None, a=4, b=7, c=4)
    rows = spark.range(300).selectExpr("cast(id as string) key", "array('a', 'b', 'c')[id % 3] topic")
    for row in tasks_of(to_owners(rows, told)):
        targets = told.targets_of(row.topic)
        number = (murmur2_of(row.key.encode()) & 0x7FFFFFFF) % len(targets)
        assert row.task == told.owner_of(targets[number])


@pytest.mark.usefixtures("either")
def test_rows_without_a_key_are_dealt_out_about_evenly(spark: SparkSession) -> None:
    rows = spark.range(0, 400, 1, 1).selectExpr("cast(null as binary) key", "id")
    counts = Counter(row.task for row in tasks_of(to_owners(rows, plan(4, t=4))))
    assert sorted(counts) == [0, 1, 2, 3]
    assert all(75 <= count <= 125 for count in counts.values())


def test_rows_without_a_key_come_to_the_same_tasks_in_whichever_order_they_are(spark: SparkSession) -> None:
    rows = spark.range(0, 400, 1, 1).selectExpr(
        "cast(null as string) key", "cast(id as string) value", "cast(null as int) partition",
        "if(id % 2 = 0, array(struct('h' key, binary(string(id)) value)), null) headers",
    )  # fmt: skip
    found = [
        {row.value: row.task for row in tasks_of(to_owners(each, plan(3, t=5)))}
        for each in (rows, rows.orderBy("headers", "value"), rows.repartition(2, "value"))
    ]
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("batch_id", [0, 1])
def test_rows_without_a_place_come_to_an_owner_of_their_topic(spark: SparkSession, batch_id: int) -> None:
    told = plan(2, batch_id, topic=None, one=1, many=3)
    rows = spark.range(200).selectExpr(
        "cast(null as string) key", "id", "array('one', 'many', 'none')[id % 3] topic"
    )
    tasks: dict[str, set[int]] = defaultdict(set)
    for row in tasks_of(to_owners(rows, told)):
        tasks[row.topic].add(row.task)
    owners = {
        topic: {told.owner_of(number) for number in told.targets_of(topic)} for topic in ("one", "many")
    }
    assert tasks == owners | {"none": {0, 1}}


@pytest.mark.parametrize("batch_id", [0, 1])
@pytest.mark.parametrize("parity", [0, 1])
@pytest.mark.parametrize("key", ["if(id % 5 = 0, null, cast(id as string))", "cast(null as string)"])
def test_a_topic_of_fewer_partitions_than_owners_gets_its_rows(
    spark: SparkSession, barnabas_bootstrap: str, name: Name, batch_id: int, parity: int, key: str
) -> None:
    one, many = create(barnabas_bootstrap, name("one"), 1), create(barnabas_bootstrap, name("many"), 3)
    batch = spark.range(0, 100, 1, 2).selectExpr(
        f"{key} key", "cast(id as string) value", f"if(id % 2 = {parity}, '{one}', '{many}') topic"
    )
    sink = ExactlyOnceKafkaSink(barnabas_bootstrap, query=name("q"), topics=[one, many], max_tries=1)
    assert sink.write(batch, batch_id).records == 100
    assert values(barnabas_bootstrap, one) == sorted(map(str, range(parity, 100, 2)))
    assert values(barnabas_bootstrap, many) == sorted(map(str, range(1 - parity, 100, 2)))


@pytest.mark.parametrize("partition", [1, 2])
def test_a_task_without_partitions_of_the_topic_names_one_past_the_last(
    spark: SparkSession, barnabas_bootstrap: str, name: Name, partition: int
) -> None:
    one, many = create(barnabas_bootstrap, name("one"), 1), create(barnabas_bootstrap, name("many"), 3)
    batch = spark.range(10).selectExpr(
        "'x' value", f"if(id = 5, '{one}', '{many}') topic", f"if(id = 5, {partition}, 0) partition"
    )
    with pytest.raises(RowError, match=f"is {partition}, but {one} has the partitions 0 to 0"):
        ExactlyOnceKafkaSink(barnabas_bootstrap, query=name("q"), topics=[one, many]).write(batch, 0)


def test_rows_of_a_task_stay_in_their_order(spark: SparkSession) -> None:
    rows = spark.range(0, 5000, 1, 2).selectExpr("cast(id % 5 as string) key", "id")
    orders: dict[tuple[int, bool], list[int]] = defaultdict(list)
    for row in tasks_of(to_owners(rows, plan(2, t=4))):
        orders[row.task, row.id < 2500].append(row.id)
    assert len(orders) == 4
    assert all(order == sorted(order) for order in orders.values())


@pytest.mark.usefixtures("either")
def test_keyed_rows_are_written_by_either_hash(
    spark: SparkSession, barnabas_bootstrap: str, name: Name
) -> None:
    topic = create(barnabas_bootstrap, name("out"), 5)
    sink = ExactlyOnceKafkaSink(barnabas_bootstrap, query=name("q"), topic=topic)
    report = sink.write(spark.range(0, 1000, 1, 3).selectExpr(*KEYED), 0)
    assert report.tries == 1
    seen = read(barnabas_bootstrap, topic)
    assert len(seen) == 1000
    assert all(one.partition == (murmur2_of(one.key or b"") & 0x7FFFFFFF) % 5 for one in seen)


@pytest.mark.usefixtures("in_java")
def test_a_streaming_query_hashes_in_java_too(
    spark: SparkSession, barnabas_bootstrap: str, name: Name, tmp_path: Path
) -> None:
    topic = create(barnabas_bootstrap, name("out"), 3)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.txt").write_text("one\ntwo\nthree\n")
    sink = ExactlyOnceKafkaSink(barnabas_bootstrap, query=name("q"), topic=topic, max_tries=1)
    stream = spark.readStream.text(str(tmp_path / "in")).selectExpr("value key", "value")
    writer = stream.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert values(barnabas_bootstrap, topic) == ["one", "three", "two"]


@pytest.mark.parametrize("partition", [-1, 3, 2_147_483_647])
def test_a_partition_past_the_last_is_named_by_the_task_that_it_comes_to(
    spark: SparkSession, barnabas_bootstrap: str, name: Name, partition: int
) -> None:
    topic = create(barnabas_bootstrap, name("out"), 3)
    batch = spark.range(10).selectExpr("'x' value", f"if(id = 5, {partition}, 0) partition")
    with pytest.raises(
        RowError, match=f"a row's partition is {partition}, but {topic} has the partitions 0 to 2"
    ):
        ExactlyOnceKafkaSink(barnabas_bootstrap, query=name("q"), topic=topic).write(batch, 0)


def test_a_keyed_row_of_an_unknown_topic_is_named(
    spark: SparkSession, barnabas_bootstrap: str, name: Name
) -> None:
    topic = create(barnabas_bootstrap, name("out"), 3)
    batch = spark.range(10).selectExpr(*KEYED, f"if(id = 5, 'elsewhere', '{topic}') topic")
    with pytest.raises(UnknownTopicError, match="a row's topic is 'elsewhere'"):
        ExactlyOnceKafkaSink(barnabas_bootstrap, query=name("q"), topics=[topic]).write(batch, 0)
