"""The families of one scrape, as objects of prometheus-client. It is imported with the first scrape."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

if TYPE_CHECKING:
    from broker.coordination.hosted_shards import Durations

QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
"""The quantiles of Kafka's histograms."""


class Families:
    """All families of one scrape, by name."""

    def __init__(self) -> None:
        self._by_name: dict[str, Metric] = {}

    def all(self) -> list[Metric]:
        return [*self._by_name.values()]

    def add(self, family: Metric) -> None:
        self._by_name[family.name] = family

    def gauge(self, name: str, doc: str, value: float, **labels: str) -> None:
        self._family(name, doc, "gauge").add_sample(name, labels, value)

    def gauge_of(self, labels: dict[str, str], name: str, doc: str, value: float) -> None:
        """As `gauge`, for a subject with many gauges: all share the same dict of labels."""
        self._family(name, doc, "gauge").samples.append(Sample(name, labels, value))

    def counter(self, name: str, doc: str, value: float, **labels: str) -> None:
        """`name` without its ending `_total`."""
        self._family(name, doc, "counter").add_sample(f"{name}_total", labels, value)

    def summary(self, name: str, doc: str, times: Durations, **labels: str) -> None:
        """A summary of durations: quantiles of the last ones, count and sum."""
        family = self._family(name, doc, "summary")
        last = sorted(times.last)
        for quantile in QUANTILES if last else ():
            place = min(int(quantile * len(last)), len(last) - 1)
            family.add_sample(name, {**labels, "quantile": f"{quantile:g}"}, last[place])
        family.add_sample(f"{name}_count", labels, times.count)
        family.add_sample(f"{name}_sum", labels, times.sum_ms)

    def _family(self, name: str, doc: str, kind: str) -> Metric:
        family = self._by_name.get(name)
        if family is None:
            family = self._by_name[name] = Metric(name, doc, kind)
        return family
