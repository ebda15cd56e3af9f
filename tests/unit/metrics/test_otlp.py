"""Whatever a client pushes is read as far as it makes sense."""

from __future__ import annotations

import random

import pytest

from broker.metrics import otlp
from broker.metrics.otlp import OtlpError, Point, points_in
from tests.support.otlp import delta_sum, field, gauge, point, push, varint


def test_gauges_and_sums_are_read_with_their_attributes() -> None:
    data = push(
        gauge("a.rate", point(1.5, {"topic": "t", "client": "c"}), point(2)),
        delta_sum("a.total", point(-3)),
    )
    assert [*points_in(data)] == [
        Point("a.rate", (("client", "c"), ("topic", "t")), 1.5, False),
        Point("a.rate", (), 2.0, False),
        Point("a.total", (), -3.0, True),
    ]


def test_values_of_attributes_may_be_numbers_and_unknown_ones_are_skipped() -> None:
    attributes = b"".join(
        field(7, field(1, key) + field(2, value))
        for key, value in (
            (b"yes", varint(2 << 3) + varint(1)),
            (b"n", varint(3 << 3) + varint((1 << 64) - 7)),
            (b"later", field(99, b"x")),
        )
    )
    metric = gauge("a", field(98, b"?") + attributes + point(1)) + field(97, b"?")
    [found] = points_in(push(metric))
    assert found.attributes == (("later", ""), ("n", "-7"), ("yes", "true"))


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a",
        b"\x0a\x05ab",
        b"\x0b",
        b"\xff" * 11,
        push(gauge("a", point(1)))[:-1],
    ],
)
def test_nonsense_is_refused(data: bytes) -> None:
    with pytest.raises(OtlpError):
        [*points_in(data)]


@pytest.mark.limit("broker.metrics.otlp.MOST_POINTS")
def test_fields_after_many_points_are_not_read() -> None:
    data = push(gauge("a", *[point(1)] * (otlp.MOST_POINTS + 5)))
    assert len([*points_in(data)]) == otlp.MOST_POINTS


@pytest.mark.limit("broker.metrics.otlp.MOST_FIELDS")
def test_a_push_of_many_fields_is_refused() -> None:
    with pytest.raises(OtlpError, match="more than 60000 fields"):
        [*points_in(push(field(1, b"a") + b"\x08\x01" * otlp.MOST_FIELDS))]


@pytest.mark.limit("broker.metrics.otlp.MOST_CHARACTERS")
@pytest.mark.limit("broker.metrics.otlp.MOST_ATTRIBUTES")
def test_names_are_cut_and_attributes_beyond_the_first_left_out() -> None:
    attributes = {f"k{number:02}": "ü" * 1_000 for number in range(30)}
    [found] = points_in(push(gauge("x" * 10_000, point(1, attributes))))
    assert found.name == "x" * otlp.MOST_CHARACTERS
    assert found.attributes == tuple((f"k{n:02}", "ü" * 200) for n in range(otlp.MOST_ATTRIBUTES))


def test_flipped_bytes_are_read_or_refused() -> None:
    chance = random.Random(7)
    whole = push(gauge("a.rate", point(1.5, {"topic": "t"}), point(2)), delta_sum("a.total", point(3)))
    for _ in range(2_000):
        data = bytearray(whole)
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            [*points_in(bytes(data[: chance.randrange(1, len(data) + 1)]))]
        except OtlpError:
            continue
