"""Some seeds of the simulations with share groups, of one node and of a cluster; `make simulation ARGS=--shares` tries
as many as you like."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from tests.simulation.cluster import cluster_simulation
from tests.simulation.course import Result
from tests.simulation.simulation import simulate

# One xdist worker gets all of these: two tests look at a seed's result, which is played once.
pytestmark = pytest.mark.xdist_group("share_simulation")

FIRST = 20
SEEDS = range(FIRST, FIRST + 4)
CLUSTER_SEEDS = (3,)


@cache
def played(seed: int) -> Result:
    """Play a seed once for all tests that look at it."""
    return simulate(seed, shares=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_share_groups_do_as_they_are_held_to_however_the_broker_dies(seed: int) -> None:
    assert played(seed).anomalies == []


@pytest.mark.parametrize("seed", CLUSTER_SEEDS)
def test_share_groups_keep_the_rules_whoever_leads_their_partitions(seed: int) -> None:
    assert cluster_simulation.simulate(seed, shares=True).anomalies == []


def test_a_seed_has_the_same_history_twice() -> None:
    assert simulate(FIRST, shares=True).history.digest == played(FIRST).history.digest


def test_members_do_everything_that_a_member_may_do() -> None:
    counts = sum((played(seed).work.counts for seed in SEEDS), Counter[str]())
    for what in (
        "acknowledgements of what one doesn't hold",
        "dead letters",
        "deaths",
        "deliveries to shares",
        "records done with by shares",
        "records of shares left at their limit",
        "share members that fell silent",
        "share members that left",
        "share members that stood still",
        "share members that were put out",
        "share sessions ended",
    ):
        assert counts[what] > 0, what
