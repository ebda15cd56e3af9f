"""The flights pipeline's own threads."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs pyspark, of the extra `spark`")

from examples.flights_pipeline import counts, feeder
from examples.flights_pipeline.__main__ import progress_line, wait_for_feeding


class Query:
    def __init__(self, failure: Exception | None = None) -> None:
        self.isActive = failure is None
        self.failure = failure

    def awaitTermination(self) -> None:
        if self.failure is not None:
            raise self.failure


def test_a_query_that_fails_while_flights_are_fed_ends_the_feeding() -> None:
    fed = threading.Event()
    feeding = threading.Thread(target=fed.wait)
    feeding.start()
    queries: list[Any] = [Query(), Query(RuntimeError("the query failed"))]
    try:
        with pytest.raises(RuntimeError, match="the query failed"):
            wait_for_feeding(feeding, *queries)
    finally:
        fed.set()
        feeding.join()


def test_queries_that_run_are_waited_for_until_all_is_fed() -> None:
    feeding = threading.Thread(target=lambda: None)
    feeding.start()
    query: Any = Query()
    wait_for_feeding(feeding, query)
    assert not feeding.is_alive()


def test_while_a_number_stands_still_the_output_says_what_it_waits_for() -> None:
    assert progress_line(5_000, 0, 0).endswith(
        "0 summed up (Spark is at its first batch, which takes longest)"
    )
    assert progress_line(5_000, 1_000, 0).endswith("0 summed up (the second query is at its first batch)")
    assert progress_line(5_000, 1_000, 10).endswith("1,000 joined,        10 summed up")


def day(name: str, carrier: str, flights: int) -> dict[str, Any]:
    return {"day": name, "carrier": carrier, "flights": flights}


def enriched(*ids: int) -> list[bytes]:
    return [json.dumps({"id": number}).encode() for number in ids]


def test_flights_and_the_records_that_close_the_year_are_counted_separately() -> None:
    found = counts.count(3, enriched(0, -1, 2, 1, -2), [day("d", "AA", 2), day("e", "AA", 1)])
    assert found.add_up
    assert [line.strip() for line in found.lines()] == [
        "3 flights were sent, and 2 records beside them that close the year, one a partition: 5 records",
        "3 flights were joined: 0 doubled, 0 missing",
        "3 flights are summed up in 2 days of airlines, of which 0 came out twice",
    ]


@pytest.mark.parametrize(
    ("joined", "days", "said"),
    [
        ((0, 1, 2, 2), [3], "1 doubled, 0 missing"),
        ((0, 1), [3], "0 doubled, 1 missing"),
        ((0, 1, 2, -1, -1), [3], "1 doubled, 0 missing"),
        ((0, 1, 2), [2], "2 flights are summed up"),
        ((0, 1, 2), [2, 1], "1 came out twice"),
    ],
)
def test_doubled_or_missing_records_do_not_add_up(
    joined: tuple[int, ...], days: list[int], said: str
) -> None:
    found = counts.count(3, enriched(*joined), [day("d", "AA", flights) for flights in days])
    assert not found.add_up
    assert said in "\n".join(found.lines())


def test_creating_topics_logs_nothing_of_the_closed_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # It says it now and then: an event came between the answer and the close.
    configs: list[dict[str, Any]] = []

    class Client:
        def __init__(self, config: dict[str, Any]) -> None:
            configs.append(config)

        def create_topics(self, topics: object) -> dict[str, Any]:
            return {}

    monkeypatch.setattr(feeder, "AdminClient", Client)
    feeder.create_topics("127.0.0.1:1", ["t"], 1)
    assert [config["log_level"] for config in configs] == [feeder.WARNING]
