"""Share groups turned off by `share.version`, and on again (KIP-932)."""

from __future__ import annotations

from typing import Any

from ..play import Play, script
from ..share_group_requests import alter, beat, describe, forget, offsets
from ..share_requests import ACCEPT, NEEDS, RELEASE, ShareConsumer, produce_batches, share_group
from ..share_state_requests import initialize, read, share_records_of

DOWNGRADE, UPGRADE = 2, 1
UNSUPPORTED_VERSION = 35


def set_share_version(play: Play, level: int, when: str = "") -> None:
    """Set the level. It is in force once this returns."""
    update = {
        "feature": "share.version",
        "max_version_level": level,
        "upgrade_type": UPGRADE if level else DOWNGRADE,
    }
    asked = {"timeout_ms": 10_000, "feature_updates": [update], "validate_only": False}
    play.ask(f"share.version {level}{when}", "UpdateFeatures", 2, asked)

    def in_force() -> bool:
        answer = play.quietly("ShareGroupHeartbeat", 1, beat(play.name("nobody"), "m", 1))
        return bool((answer.error_code == UNSUPPORTED_VERSION) == (level == 0))

    play.until("it is in force", in_force)


@script(properties="shares", needs=NEEDS)
def off_and_on_again(play: Play) -> None:
    topic = play.topic("t")
    group = share_group(play, "g", (topic, 0))
    produce_batches(play, topic, 3, 3)
    consumer = ShareConsumer(play, group, topic)
    consumer.fetch("both batches", batch_size=3)
    consumer.ack("one of each kind", (0, 0, ACCEPT), (1, 1, RELEASE))
    set_share_version(play, 0)
    _ask_all(play, "off", group, topic)
    until_share_partitions_are_gone(play)
    set_share_version(play, 1)
    consumer.fetch("the session is over")
    consumer.epoch = 0
    consumer.fetch("all but the first one", batch_size=3, max_wait_ms=5_000)
    consumer.ack("accepted", (1, 5, ACCEPT))
    play.note("written", share_records_of(play, group, topic))


def until_share_partitions_are_gone(play: Play) -> None:
    """Wait for another change of the metadata. Removing share partitions is the last thing that Kafka's broker does for
    a change, so they are gone by the next one."""
    play.topic("after")


def _ask_all(play: Play, case: str, group: str, topic: Any) -> None:
    consumer = ShareConsumer(play, group, topic, "other")
    consumer.fetch(f"{case}: a fetch")
    consumer.ack(f"{case}: an acknowledgement", (0, 0, ACCEPT))
    for api, version, fields in (
        ("ShareGroupHeartbeat", 1, beat(group, "m", 0, topic.name)),
        ("DescribeShareGroupOffsets", 1, offsets(group, None)),
        ("AlterShareGroupOffsets", 0, alter(group, {topic.name: {0: 1}})),
        ("DeleteShareGroupOffsets", 0, forget(group, topic.name)),
        ("InitializeShareGroupState", 0, initialize(play.name("h"), (topic, 0))),
        ("ReadShareGroupState", 0, read(group, (topic, 0))),
    ):
        play.ask(f"{case}: {api}", api, version, fields)
    describe(play, f"{case}: described", group)
