"""Runs in which every request is long: groups and fetches are too small here to be long by themselves.

Each heartbeat of a consumer, share or streams group is decided beside the loop. Each Fetch is read in turns, one
partition per turn, and so is each share session fetched for, acknowledged and given back. Computing takes its time, see
`virtual_scheduler.VirtualComputing`.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from unittest.mock import patch

from broker.handlers import fetch
from broker.network import pieces, turns
from broker.replicas import fetching
from broker.shares import share_fetching, share_partition_manager
from broker.shares import share_fetching as delayed_share_fetch
from coordinator.group.consumer import heartbeats as long_heartbeat
from coordinator.group.share import heartbeats as long_shares
from coordinator.group.streams import heartbeats as long_streams

SHARE = 0.3


def are_long(luck: random.Random) -> bool:
    """Decide this for a seed: about three in ten are long."""
    return luck.random() < SHARE


@contextlib.contextmanager
def all_long() -> Iterator[None]:
    with (
        patch.object(long_heartbeat, "MOST_IN_PASSING", -1),
        patch.object(long_streams, "MOST_DECIDED_IN_PASSING", -1),
        patch.object(long_shares, "MOST_OF_SHARES_IN_PASSING", -1),
        patch.object(delayed_share_fetch, "MOST_ACQUIRED_IN_PASSING", 0),
        patch.object(share_partition_manager, "MOST_ASKED_IN_PASSING", 1),
        patch.object(share_fetching, "MOST_ACQUIRED_IN_PASSING", 1),
        patch.object(share_fetching, "PER_TURN", 1),
        patch.object(fetch, "PER_TURN", 0),
        patch.object(fetching, "PER_TURN", 1),
        patch.object(turns, "PER_TURN", 1),
        patch.object(pieces, "MOST_OF_PIECE", 1),
    ):
        yield
