"""Share consumers for scripts. They keep a session, and only ask the leader (KIP-932)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .batches import batch
from .play import Play
from .scene import Topic
from .share_state_requests import initialize, share_state_is_there

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
NEEDS = ("InitializeShareGroupState", "ShareFetch", "ShareAcknowledge")

Fields = dict[str, Any]
Acks = Sequence[tuple[int, int, int | Sequence[int]]]
"""First and last offset, and one type for all of them or one for each."""


def configure(play: Play, group: str, **configs: str) -> None:
    """Set a group's settings. They are in force when this returns. A config's dots are underscores here, without
    `share.`."""
    wanted = {"share." + name.replace("_", "."): value for name, value in configs.items()}
    play.quietly(
        "IncrementalAlterConfigs",
        1,
        {
            "resources": [
                {
                    "resource_type": 32,
                    "resource_name": group,
                    "configs": [
                        {"name": name, "config_operation": 0, "value": value}
                        for name, value in wanted.items()
                    ],
                }
            ],
            "validate_only": False,
        },
    )

    def in_force() -> bool:
        asked = {"resource_type": 32, "resource_name": group, "configuration_keys": list(wanted)}
        (found,) = play.quietly("DescribeConfigs", 4, {"resources": [asked]}).results
        return {each.name: each.value for each in found.configs} == wanted

    play.until("the group's settings are in force", in_force)


def share_group(play: Play, suffix: str, *parts: tuple[Topic, int], start: int = -1, **configs: str) -> str:
    """Return a group whose share partitions are initialized, and loaded by their leader while there are no records.

    It begins at the earliest offset unless `configs` says otherwise.
    """
    group = play.name(suffix)
    configure(play, group, **{"auto_offset_reset": "earliest"} | configs)
    for topic, index in parts:
        share_state_is_there(play, group, topic, index)
    play.quietly("InitializeShareGroupState", 0, initialize(group, *parts, start=start))
    for part in parts:
        until_loaded(play, group, part)
    return group


def until_loaded(play: Play, group: str, part: tuple[Topic, int]) -> None:
    """Wait until the leader has read the state of a share partition: then a session's first answer lists it."""

    def loaded() -> bool:
        answer = play.quietly("ShareFetch", 2, share_fetch(group, "loading", 0, part))
        return any(topic.partitions for topic in answer.responses)

    play.until("the share partition is loaded", loaded)
    play.quietly("ShareFetch", 2, share_fetch(group, "loading", -1))


def share_fetch(
    group: str | None,
    member: str | None,
    epoch: int,
    *parts: tuple[Topic | bytes, int],
    acks: Mapping[tuple[Topic | bytes, int], Acks] | None = None,
    forget: Sequence[tuple[Topic | bytes, int]] = (),
    **fields: Any,
) -> Fields:
    """Name the partitions in `parts` and in `acks`."""
    acks = acks or {}
    wanted: dict[bytes, list[Fields]] = {}
    for topic, index in dict.fromkeys([*parts, *acks]):
        wanted.setdefault(_id_of(topic), []).append(
            {"partition_index": index, "acknowledgement_batches": _batches(acks.get((topic, index), ()))}
        )
    return {
        "group_id": group,
        "member_id": member,
        "share_session_epoch": epoch,
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": 1_000_000,
        "max_records": 500,
        "batch_size": 500,
        "share_acquire_mode": 0,
        "is_renew_ack": False,
        "topics": [{"topic_id": topic_id, "partitions": named} for topic_id, named in wanted.items()],
        "forgotten_topics_data": [
            {"topic_id": _id_of(topic), "partitions": [index]} for topic, index in forget
        ],
    } | fields


def share_acknowledge(
    group: str | None,
    member: str | None,
    epoch: int,
    acks: Mapping[tuple[Topic | bytes, int], Acks],
    *,
    renews: bool = False,
) -> Fields:
    named: dict[bytes, list[Fields]] = {}
    for (topic, index), batches in acks.items():
        named.setdefault(_id_of(topic), []).append(
            {"partition_index": index, "acknowledgement_batches": _batches(batches)}
        )
    return {
        "group_id": group,
        "member_id": member,
        "share_session_epoch": epoch,
        "is_renew_ack": renews,
        "topics": [{"topic_id": topic_id, "partitions": parts} for topic_id, parts in named.items()],
    }


def _id_of(topic: Topic | bytes) -> bytes:
    return topic if isinstance(topic, bytes) else topic.topic_id


def _batches(acks: Acks) -> list[Fields]:
    return [
        {
            "first_offset": first,
            "last_offset": last,
            "acknowledge_types": [types] if isinstance(types, int) else [*types],
        }
        for first, last, types in acks
    ]


def produce_batches(play: Play, topic: Topic, *sizes: int, partition: int = 0) -> None:
    """Write batches with these numbers of records."""
    play.write(topic.name, *(batch(size) for size in sizes), partition=partition)


class ShareConsumer:
    """A member with a session on its own connection. It counts its epochs as long as all goes well."""

    def __init__(
        self, play: Play, group: str, topic: Topic, member: str = "m", *, partition: int = 0, version: int = 2
    ) -> None:
        self._play = play
        self.group = group
        self.topic = topic
        self.member = member
        self.partition = partition
        self.version = version
        self.epoch = 0

    @property
    def on(self) -> str:
        return f"main {self.member}"

    def fields(self, *acks: tuple[int, int, int | Sequence[int]], **fields: Any) -> Fields:
        part = (self.topic, self.partition)
        named = [part] if self.epoch == 0 else []
        return share_fetch(
            self.group, self.member, self.epoch, *named, acks={part: acks} if acks else None, **fields
        )

    def fetch(self, case: str, *acks: tuple[int, int, int | Sequence[int]], **fields: Any) -> Any:
        answer = self._play.ask(
            case, "ShareFetch", self.version, self.fields(*acks, **fields), on=self.on, within_s=20.0
        )
        return self._counted(answer)

    def send(self, case: str, **fields: Any) -> Any:
        """Send a fetch whose answer is received later."""
        pending = self._play.send(case, "ShareFetch", self.version, self.fields(**fields), on=self.on)
        self.epoch += 1
        return pending

    def ack(self, case: str, *acks: tuple[int, int, int | Sequence[int]], renews: bool = False) -> Any:
        fields = share_acknowledge(
            self.group, self.member, self.epoch, {(self.topic, self.partition): acks}, renews=renews
        )
        return self._counted(self._play.ask(case, "ShareAcknowledge", self.version, fields, on=self.on))

    def leave(self, case: str, *acks: tuple[int, int, int | Sequence[int]]) -> None:
        self.epoch = -1
        self.fetch(case, *acks)
        self.epoch = 0

    def hang_up(self) -> None:
        """End its connection, and its session with it."""
        self._play.drop(self.on)
        self.epoch = 0

    def _counted(self, answer: Any) -> Any:
        if answer is not None and answer.error_code == 0 and self.epoch >= 0:
            self.epoch += 1
        return answer
