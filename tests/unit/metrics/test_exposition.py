"""A scrape is written in the way that prometheus-client would write it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from prometheus_client import ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from broker.coordination.hosted_shards import Durations
from broker.metrics.exposition import exposition
from broker.metrics.families import Families

NUMBERS = (0, 1, -5, True, 999_999, 1_000_000, 1 << 53, -1_000_000, 0.5, 1e-9, 12345678.25, float("inf"), -1)
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


class Collected:
    """A registry in the form that an encoder takes."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Sequence[Metric]:
        return self._families


def families() -> list[Metric]:
    made = Families()
    for number, value in enumerate(NUMBERS):
        made.gauge("a_gauge", 'It "says" one \\ thing\nand another', value, of=str(number))
    shared = {"topic": 'odd "\\\n ü', "partition": "0"}
    for name in ("one", "another"):
        made.gauge_of(shared, name, "Of a partition", 12)
    made.gauge("bare", "Without labels", 3)
    made.counter("counts", "Only up", 7, of="x")
    times = Durations()
    for took_ms in (1, 2.5):
        times.add(took_ms)
    made.summary("took", "How long", times, request="Produce")
    for family in ProcessCollector(registry=None).collect():
        made.add(family)
    return made.all()


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_each_line_is_as_prometheus_client_writes_it(accept: str) -> None:
    found = families()
    encode, content_type = choose_encoder(accept)
    assert ("openmetrics" in content_type) == bool(accept)
    assert exposition(found, is_openmetrics=bool(accept)) == encode(Collected(found))  # type: ignore[arg-type]


def test_a_reader_of_the_text_finds_the_same_values() -> None:
    text = exposition(families(), is_openmetrics=False).decode()
    [family] = [each for each in text_string_to_metric_families(text) if each.name == "one"]
    assert family.samples[0].labels == {"topic": 'odd "\\\n ü', "partition": "0"}
