"""What comes of a streams group's heartbeat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from protocol.messages.groups_streams import StreamsGroupHeartbeatResponse
from protocol.messages.topics import CreatableTopic


class StreamsAnswer(NamedTuple):
    """`to_create`: the internal topics that are missing, by name, for the broker to make as whoever asks."""

    response: StreamsGroupHeartbeatResponse
    to_create: Mapping[str, CreatableTopic]
    heartbeat_interval_ms: int
