"""Some seeds of the simulation of a cluster; `make simulation ARGS=--cluster` tries as many as you like."""

from __future__ import annotations

from functools import cache

import pytest

from broker.peers import peer
from broker.peers.opening import Entrance, Versions, signed_in
from tests.simulation.cluster.cluster_simulation import simulate
from tests.simulation.cluster.faults import Deaths
from tests.simulation.course import Result
from tests.simulation.elsewhere import digests_elsewhere

# One xdist worker gets all of these: two tests look at a seed's result, which is played once.
pytestmark = pytest.mark.xdist_group("cluster_simulation")

IN_PASSING = 3
SECURED = 2
SEEDS = range(1, 5)
"""Only a few, because each takes seconds. Together they contain every fault of a cluster."""


@cache
def played(seed: int) -> Result:
    """Play a seed once for all tests that look at it."""
    return simulate(seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_that_counts_is_lost_and_all_replicas_are_equal_in_the_end(seed: int) -> None:
    assert played(seed).anomalies == []


def test_nothing_is_lost_while_nodes_sign_in_at_each_other_repeatedly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    again = []

    async def counted(entrance: Entrance, versions: Versions) -> int:
        again.append(entrance.name)
        return await signed_in(entrance, versions)

    monkeypatch.setattr(peer, "signed_in", counted)  # only nodes that sign in again call it there
    assert simulate(SECURED, secured=True).anomalies == []
    assert {*again} == {"NODES", "CONTROLLER"}


def test_every_possible_misfortune_of_a_cluster_happens() -> None:
    results = [played(seed) for seed in SEEDS]
    assert {result.deaths for result in results} == {*Deaths}
    counted = sum((result.work.counts for result in results), results[0].work.counts.__class__())
    for what in (
        "nodes killed",
        "nodes without power",
        "nodes stopped",
        "disks that failed",
        "nodes that stopped for their disk",
        "pauses",
        "ways closed",
        "ways slow",
        "connections broken",
        "transactions committed",
        "transactions aborted",
        "commits of members",
        "moves between directories",
    ):
        assert counted[what] > 0, what


def test_a_seed_has_the_same_history_twice_whatever_the_hashes_of_strings_are() -> None:
    """This process has its own seed for them, or the one that it was given."""
    [elsewhere] = digests_elsewhere("tests.simulation.cluster.cluster_simulation", (IN_PASSING,))
    assert elsewhere == played(IN_PASSING).history.digest
    assert played(IN_PASSING).history.digest != played(1).history.digest
