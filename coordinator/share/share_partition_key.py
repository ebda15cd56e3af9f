"""The key of a share partition: a group's view of one partition of a topic (Kafka: `SharePartitionKey`)."""

from __future__ import annotations

import re
from typing import NamedTuple

from coordinator.java.maps import is_blank
from protocol.wire.primitives import uuid_from_text, uuid_to_text

_JAVA_INT = re.compile(r"[+-]?\d{1,30}")


class SharePartitionKey(NamedTuple):
    """The key of a share partition. It has the topic's id, and not its name."""

    group_id: str
    topic_id: bytes
    partition: int

    @property
    def text(self) -> str:
        """The form in FindCoordinator. It determines the partition of `__share_group_state`."""
        return f"{self.group_id}:{uuid_to_text(self.topic_id)}:{self.partition}"

    @classmethod
    def from_text(cls, text: str) -> SharePartitionKey:
        """Parse a key. The group's id may contain colons. Raises ValueError if it is malformed.

        It does what Java does with such a text: `split` drops empty parts at the end, `parseInt` takes a sign.
        """
        parts = text.split(":")
        while parts and not parts[-1]:
            del parts[-1]
        group_id = ":".join(parts[:-2])
        if is_blank(group_id):
            raise ValueError(f"{text!r} is no key of a share partition")
        if not _JAVA_INT.fullmatch(parts[-1]) or not -(2**31) <= int(parts[-1]) < 2**31:
            raise ValueError(f"{parts[-1]!r} is no index of a partition")
        return cls(group_id, uuid_from_text(parts[-2]), int(parts[-1]))
