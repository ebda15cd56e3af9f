"""`group=`: the query's lag as Kafka's own tool shows it, and offsets that share the fate of the output."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="needs pyspark, of the extra `spark`")

from barnabas.spark import transaction
from barnabas.spark.errors import BrokerRefusedError
from tests.spark.outputs import committed_offsets, create, values
from tests.spark.test_sink import as_text, fill, run, sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Name = Callable[[str], str]
Tool = Callable[..., str]


def lag(tool: Tool, bootstrap: str, group: str) -> dict[tuple[str, int], tuple[int, int, int]]:
    """Of each partition its committed offset, the log's end, and the lag, as `kafka-consumer-groups` prints them."""
    printed = tool("groups", "--bootstrap-server", bootstrap, "--describe", "--group", group)
    lines = [line.split() for line in printed.splitlines() if line.strip()]
    (header,) = (line for line in lines if line[0] == "GROUP")
    rows = [dict(zip(header, line, strict=False)) for line in lines if line[0] == group]
    numbers = ("CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")
    return {
        (row["TOPIC"], int(row["PARTITION"])): tuple(int(row[one]) for one in numbers)  # type: ignore[misc]
        for row in rows
    }


def test_the_querys_lag_is_as_kafkas_tool_shows_it(
    spark: SparkSession, bootstrap: str, name: Name, needs_kafka: Tool, tmp_path: Path
) -> None:
    source, topic, group = create(bootstrap, name("in"), 2), create(bootstrap, name("out"), 3), name("group")
    one = sink(bootstrap, name("q"), topic, group)
    fill(bootstrap, source, 0, 100)
    run(spark, bootstrap, source, one, tmp_path)
    fill(bootstrap, source, 100, 130)
    assert lag(needs_kafka, bootstrap, group) == dict.fromkeys([(source, 0), (source, 1)], (50, 65, 15))
    run(spark, bootstrap, source, one, tmp_path)
    assert lag(needs_kafka, bootstrap, group) == dict.fromkeys([(source, 0), (source, 1)], (65, 65, 0))
    one.close()


def test_offsets_of_a_batch_that_was_aborted_are_not_committed(
    spark: SparkSession,
    barnabas_bootstrap: str,
    name: Name,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bootstrap = barnabas_bootstrap
    source, topic, group = create(bootstrap, name("in"), 2), create(bootstrap, name("out"), 3), name("group")
    one = sink(bootstrap, name("q"), topic, group)
    fill(bootstrap, source, 0, 100)
    run(spark, bootstrap, source, one, tmp_path)
    fill(bootstrap, source, 100, 130)

    def refuse(*_: Any) -> None:
        raise BrokerRefusedError("behind the offsets, ahead of the commit")

    with monkeypatch.context() as patched:
        patched.setattr(transaction.hanging, "check", refuse)
        with pytest.raises(Exception, match="behind the offsets"):
            run(spark, bootstrap, source, one, tmp_path)
    assert committed_offsets(bootstrap, group) == {(source, 0): 50, (source, 1): 50}
    assert values(bootstrap, topic) == as_text(100)
    run(spark, bootstrap, source, one, tmp_path)
    assert committed_offsets(bootstrap, group) == {(source, 0): 65, (source, 1): 65}
    assert values(bootstrap, topic) == as_text(130)
    one.close()
