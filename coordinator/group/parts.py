"""What the behaviour of all groups of a shard works with."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from coordinator.group.consumer_timeouts import ConsumerTimeouts
from coordinator.group.journal import Journal
from coordinator.group.known_topics import KnownTopics
from coordinator.group.member_memory import MemberMemory
from coordinator.group.modern.topic_hashes import TopicHashes
from coordinator.group.settings import GroupSettings
from coordinator.group.share.share_timeouts import ShareTimeouts
from coordinator.group.store import GroupStore
from coordinator.group.streams.config import StreamsConfig
from coordinator.group.undecided import Undecided
from coordinator.persister import Persister
from coordinator.ports import Runtime


class SharePorts(NamedTuple):
    """What share groups need beside."""

    persister: Persister
    timeouts_of: Callable[[str], ShareTimeouts]
    """Those of a share group, by its id."""


class ShardParts(NamedTuple):
    """The shard owns them; each piece of behaviour takes out what it uses."""

    runtime: Runtime
    store: GroupStore
    journal: Journal
    settings: GroupSettings
    topics: KnownTopics
    hashes: TopicHashes
    undecided: Undecided
    member_memory: MemberMemory
    timeouts_of: Callable[[str], ConsumerTimeouts]
    """Those of a consumer group, by its id."""
    streams_config_of: Callable[[str], StreamsConfig]
    """What a streams group has set for itself, by its id."""
    share: SharePorts
