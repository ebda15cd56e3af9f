"""`log.cleaner.io.max.bytes.per.second` is kept as Kafka's Throttler keeps it."""

import pytest

from broker.cleaner.passes import Throttle


def test_a_pass_of_less_than_300_ms_is_not_slowed() -> None:
    throttle = Throttle(1000, 10.0)
    assert throttle.rest_s(10**9, 10.29) == 0


def test_a_longer_pass_rests_until_the_average_of_the_period_fits() -> None:
    throttle = Throttle(1000, 10.0)
    assert throttle.rest_s(500, 10.2) == 0
    assert throttle.rest_s(500, 10.4) == pytest.approx(0.6)


def test_a_new_period_begins_after_the_rest() -> None:
    throttle = Throttle(1000, 10.0)
    throttle.rest_s(1000, 10.4)
    assert throttle.rest_s(10**6, 11.2) == 0
    assert throttle.rest_s(0, 11.5) == pytest.approx(999.5)


def test_idle_time_counts_towards_the_average() -> None:
    throttle = Throttle(1000, 0.0)
    assert throttle.rest_s(50_000, 60.0) == 0


def test_a_slow_pass_does_not_rest() -> None:
    throttle = Throttle(1000, 10.0)
    assert throttle.rest_s(300, 11.0) == 0


@pytest.mark.parametrize(("rate", "rest_s"), [(0.0, 3599.0), (-1.0, 0.0), (1.7976931348623157e308, 0.0)])
def test_any_rate_that_kafka_accepts_is_kept(rate: float, rest_s: float) -> None:
    assert Throttle(rate, 0.0).rest_s(100, 1.0) == pytest.approx(rest_s)
