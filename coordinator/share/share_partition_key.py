"""Which share partition: a group's view of one partition of a topic (Kafka: `SharePartitionKey`)."""

from __future__ import annotations

import re
from typing import NamedTuple

from coordinator.java.maps import is_blank
from protocol.wire.primitives import uuid_from_text, uuid_to_text

_JAVA_INT = re.compile(r"[+-]?\d{1,30}")


class SharePartitionKey(NamedTuple):
    """By its topic's id: the name doesn't count."""

    group_id: str
    topic_id: bytes
    partition: int

    @property
    def text(self) -> str:
        """As FindCoordinator is asked for it, and by which its partition of `__share_group_state` is found."""
        return f"{self.group_id}:{uuid_to_text(self.topic_id)}:{self.partition}"

    @classmethod
    def from_text(cls, text: str) -> SharePartitionKey:
        """The group's id may have colons itself. Raises ValueError where it makes no sense.

        What Java makes of such a text: its `split` drops what is empty at the end, `parseInt` takes a sign.
        """
        parts = text.split(":")
        while parts and not parts[-1]:
            del parts[-1]
        group_id = ":".join(parts[:-2])
        if is_blank(group_id):
            raise ValueError(f"{text!r} is no key of a share partition")
        if not _JAVA_INT.fullmatch(parts[-1]) or not -(2**31) <= int(parts[-1]) < 2**31:
            raise ValueError(f"{parts[-1]!r} is the index of no partition")
        return cls(group_id, uuid_from_text(parts[-2]), int(parts[-1]))
