"""Runs in which whatever is asked is long: groups and fetches are too small here to be so by themselves.

Each heartbeat of a consumer, a share or a streams group is decided beside the loop, each Fetch is read in turns, a
partition in each, as each session of share partitions is fetched for, acknowledged and given back; and what is computed
takes its time, see `virtual_scheduler.VirtualComputing`.
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
    """Of a seed by its luck: about three in ten."""
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
