"""The flights pipeline's own threads."""

from __future__ import annotations

import threading
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs pyspark, of the extra `spark`")

from examples.flights_pipeline.__main__ import wait_for_feeding


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
