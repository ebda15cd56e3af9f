"""Whatever racks and brokers there are: no replica too many, racks and leaders even."""

from __future__ import annotations

import random
from collections import Counter
from itertools import islice

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.controller.image import ClusterImage
from broker.controller.replica_placer import StripedReplicaPlacer, usable_brokers
from tests.support.examples import examples
from tests.unit.controller.clusters import cluster, register

RACKS = st.sampled_from([None, "a", "b", "c", "d", ""])
MOST_BROKERS = 9
EACH = 400
"""Partitions for each broker: what chance adds or takes stays well below two fifths of it."""


@st.composite
def clusters(draw: st.DrawFn, *, fenced: bool = True) -> ClusterImage:
    """With at least one broker that isn't fenced."""
    image = cluster()
    broker_ids = draw(st.lists(st.integers(0, 40), min_size=1, max_size=MOST_BROKERS, unique=True))
    for place, broker_id in enumerate(broker_ids):
        is_fenced = fenced and place > 0 and draw(st.booleans())
        register(image, broker_id, draw(RACKS), fenced=is_fenced)
    return image


def partitions_of(image: ClusterImage, replication_factor: int, count: int, seed: int) -> list[list[int]]:
    placer = StripedReplicaPlacer(random.Random(seed).randrange)
    return [*placer.place(image, count, replication_factor)]


@settings(max_examples=examples(100), deadline=None)
@given(image=clusters(), factor=st.integers(1, MOST_BROKERS), seed=st.integers(0, 2**32))
def test_each_partition_has_as_many_brokers_as_are_wanted_none_twice_and_may_be_led_by_the_first(
    image: ClusterImage, factor: int, seed: int
) -> None:
    factor = min(factor, len(image.brokers))
    for replicas in partitions_of(image, factor, 60, seed):
        assert len({*replicas}) == len(replicas) == factor
        assert {*replicas} <= image.brokers.keys()
        assert not image.brokers[replicas[0]].fenced


@settings(max_examples=examples(100), deadline=None)
@given(image=clusters(), factor=st.integers(1, MOST_BROKERS), seed=st.integers(0, 2**32))
def test_a_fenced_broker_is_taken_where_its_rack_has_no_other_left(
    image: ClusterImage, factor: int, seed: int
) -> None:
    """Until turns are counted anew: from then on Kafka passes over some, and so do we."""
    factor = min(factor, len(image.brokers))
    first_turns = sum(not broker.fenced for broker in image.brokers.values())
    for replicas in partitions_of(image, factor, first_turns, seed):
        for broker_id in replicas:
            broker = image.brokers[broker_id]
            if broker.fenced:
                unfenced = {
                    other.broker_id
                    for other in usable_brokers(image)
                    if other.rack == broker.record.rack and not other.fenced
                }
                assert unfenced <= {*replicas}


@settings(max_examples=examples(100), deadline=None)
@given(image=clusters(fenced=False), factor=st.integers(2, MOST_BROKERS), seed=st.integers(0, 2**32))
def test_replicas_are_spread_over_the_racks_as_evenly_as_these_have_brokers(
    image: ClusterImage, factor: int, seed: int
) -> None:
    """No rack has two more than another one that has a broker left."""
    factor = min(factor, len(image.brokers))
    sizes = Counter(broker.rack for broker in usable_brokers(image))
    for replicas in partitions_of(image, factor, 60, seed):
        counts = Counter(image.brokers[broker_id].record.rack for broker_id in replicas)
        most = max(counts.values())
        assert all(counts[rack] >= min(most - 1, size) for rack, size in sizes.items())


@settings(max_examples=examples(20), deadline=None)
@given(size=st.integers(1, 3), racks=st.integers(1, 4), factor=st.integers(1, 4), seed=st.integers(0, 2**32))
def test_over_many_partitions_each_broker_of_equal_racks_leads_and_has_about_as_many(
    size: int, racks: int, factor: int, seed: int
) -> None:
    brokers = [f"{10 * rack + place}/{rack}" for rack in range(racks) for place in range(size)]
    factor = min(factor, len(brokers))
    partitions = partitions_of(cluster(" ".join(brokers)), factor, EACH * len(brokers), seed)
    leads = Counter(replicas[0] for replicas in partitions)
    has = Counter(broker_id for replicas in partitions for broker_id in replicas)
    assert len(leads) == len(brokers)
    assert 0.6 * EACH <= min(leads.values()) <= max(leads.values()) <= 1.4 * EACH
    assert 0.6 * EACH * factor <= min(has.values()) <= max(has.values()) <= 1.4 * EACH * factor


@settings(max_examples=examples(50), deadline=None)
@given(image=clusters(), factor=st.integers(1, MOST_BROKERS), seed=st.integers(0, 2**32))
def test_the_first_of_many_partitions_are_placed_as_if_they_were_all(
    image: ClusterImage, factor: int, seed: int
) -> None:
    factor = min(factor, len(image.brokers))
    placer = StripedReplicaPlacer(random.Random(seed).randrange)
    assert [*islice(placer.place(image, 10**9, factor), 7)] == partitions_of(image, factor, 7, seed)
