"""DescribeQuorum, UpdateFeatures and UnregisterBroker."""

from __future__ import annotations

from typing import Any

from ..play import Play, script, versions

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


def quorum(*topics: tuple[str, list[int]]) -> dict[str, Any]:
    return {
        "topics": [
            {"topic_name": name, "partitions": [{"partition_index": index} for index in partitions]}
            for name, partitions in topics
        ]
    }


@script(needs=("DescribeQuorum",))
def describe(play: Play) -> None:
    a = play.topic("a")
    for version in versions("DescribeQuorum"):
        play.ask(
            f"the metadata's (v{version})", "DescribeQuorum", version, quorum(("__cluster_metadata", [0]))
        )
        play.ask(f"another topic's (v{version})", "DescribeQuorum", version, quorum((a.name, [0])))
        play.ask(f"none (v{version})", "DescribeQuorum", version, quorum())
    for case, asked in {
        "another partition": quorum(("__cluster_metadata", [1])),
        "two partitions": quorum(("__cluster_metadata", [0, 1])),
        "a partition twice": quorum(("__cluster_metadata", [0, 0])),
        "no partitions": quorum(("__cluster_metadata", [])),
        "two topics": quorum(("__cluster_metadata", [0]), (a.name, [0])),
        "an unknown topic": quorum(("nowhere", [0, 1])),
    }.items():
        play.ask(case, "DescribeQuorum", 2, asked)


def features(*updates: tuple[str, int, int], only: bool = False, timeout_ms: int = 10_000) -> dict[str, Any]:
    return {
        "timeout_ms": timeout_ms,
        "feature_updates": [
            {"feature": name, "max_version_level": level, "upgrade_type": kind}
            for name, level, kind in updates
        ],
        "validate_only": only,
    }


@script(needs=("UpdateFeatures",), properties="second")
def update_features(play: Play) -> None:
    shown = ("ApiVersions", 3, {"client_software_name": "compare", "client_software_version": "1"})

    def finalized(name: str) -> list[int]:
        answer = play.quietly(*shown)
        return [f.max_version_level for f in answer.finalized_features if f.name == name]

    for version in versions("UpdateFeatures"):
        for case, asked in {
            "none": features(),
            "as it is": features(("group.version", 1, UPGRADE)),
            "unknown": features(("no.such", 1, UPGRADE)),
            "too high": features(("group.version", 2, UPGRADE)),
        }.items():
            play.ask(f"{case} (v{version})", "UpdateFeatures", version, asked)
    for case, asked in {
        "as it is, as a downgrade": features(("group.version", 1, SAFE_DOWNGRADE)),
        "lower, as an upgrade": features(("group.version", 0, UPGRADE)),
        "lower, only validated": features(("group.version", 0, SAFE_DOWNGRADE), only=True),
        "lower": features(("group.version", 0, SAFE_DOWNGRADE)),
        "higher, as a downgrade": features(("group.version", 1, UNSAFE_DOWNGRADE)),
        "one good, one bad": features(("group.version", 1, UPGRADE), ("transaction.version", 9, UPGRADE)),
    }.items():
        play.ask(case, "UpdateFeatures", 2, asked)
    play.until("the lower level is known", lambda: not finalized("group.version"))
    play.ask("the levels", *shown)
    for case, asked in {
        "higher again": features(("group.version", 1, UPGRADE)),
        "two of them": features(
            ("transaction.version", 1, SAFE_DOWNGRADE), ("share.version", 0, UNSAFE_DOWNGRADE)
        ),
        "and back": features(("transaction.version", 2, UPGRADE), ("share.version", 1, UPGRADE)),
        "eligible replicas off": features(("eligible.leader.replicas.version", 0, SAFE_DOWNGRADE)),
        "eligible replicas on": features(("eligible.leader.replicas.version", 1, UPGRADE)),
        "negative": features(("group.version", -1, SAFE_DOWNGRADE)),
        "upgrade type 0": features(("group.version", 1, 0)),
        "upgrade type 4": features(("group.version", 1, 4)),
        "metadata as it is": features(("metadata.version", 30, UPGRADE)),
        "metadata lower, safely": features(("metadata.version", 29, SAFE_DOWNGRADE)),
        "metadata lower, unsafely": features(("metadata.version", 29, UNSAFE_DOWNGRADE)),
        "metadata too low": features(("metadata.version", 6, SAFE_DOWNGRADE)),
        "metadata too high": features(("metadata.version", 31, UPGRADE)),
        "a feature twice": features(("group.version", 1, UPGRADE), ("group.version", 7, UPGRADE)),
        "kraft as it is": features(("kraft.version", 0, SAFE_DOWNGRADE)),
        "kraft too high": features(("kraft.version", 2, UPGRADE)),
        "no name": features(("", 1, UPGRADE)),
        "no time": features(("group.version", 1, UPGRADE), timeout_ms=0),
    }.items():
        play.ask(case, "UpdateFeatures", 2, asked)
    for version in (0, 1):
        asked = features(("transaction.version", 1, SAFE_DOWNGRADE))
        asked["feature_updates"][0]["allow_downgrade"] = True
        play.ask(f"lower (v{version})", "UpdateFeatures", version, asked)
        back = features(("transaction.version", 2, UPGRADE))
        play.ask(f"and back (v{version})", "UpdateFeatures", version, back)
    play.until("the higher level is known", lambda: finalized("transaction.version") == [2])
    play.ask("the levels at the end", *shown)


@script(needs=("UnregisterBroker",))
def unregister(play: Play) -> None:
    for broker_id in (77, -1, 2**31 - 1):
        play.ask(f"broker {broker_id}", "UnregisterBroker", 0, {"broker_id": broker_id})


VOTER_ID, DIRECTORY_ID = 3001, b"directory of one"
ELSEWHERE = {"name": "CONTROLLER", "host": "127.0.0.1", "port": 9}


def voter(**differing: Any) -> dict[str, Any]:
    return {
        "cluster_id": None,
        "voter_id": VOTER_ID,
        "voter_directory_id": DIRECTORY_ID,
    } | differing


@script(needs=("AddRaftVoter", "RemoveRaftVoter"))
def voters(play: Play) -> None:
    for case, differing in {
        "another voter": {},
        "no voter's id": {"voter_id": -1},
        "no directory": {"voter_directory_id": bytes(16)},
        "another cluster": {"cluster_id": "another"},
        "another cluster, and no directory": {"cluster_id": "another", "voter_directory_id": bytes(16)},
        "no cluster": {"cluster_id": ""},
    }.items():
        play.ask(f"remove: {case}", "RemoveRaftVoter", 0, voter(**differing))
        for version in versions("AddRaftVoter"):
            more = {"timeout_ms": 1_000, "listeners": [ELSEWHERE]}
            play.ask(f"add: {case} (v{version})", "AddRaftVoter", version, voter(**more, **differing))
    for case, listeners in {
        "no listener": [],
        "another listener": [ELSEWHERE | {"name": "BESIDE"}],
        "another one too": [ELSEWHERE | {"name": "BESIDE"}, ELSEWHERE],
    }.items():
        play.ask(f"add: {case}", "AddRaftVoter", 1, voter(timeout_ms=1_000, listeners=listeners))


@script(needs=("AddRaftVoter", "RemoveRaftVoter", "UpdateFeatures"), properties="voters")
def moved_into_the_log(play: Play) -> None:
    """`kraft.version` becomes 1 if `controller.quorum.voters` names the only voter (KIP-853)."""
    shown = ("ApiVersions", 3, {"client_software_name": "compare", "client_software_version": "1"})

    def is_finalized() -> bool:
        return any(each.name == "kraft.version" for each in play.quietly(*shown).finalized_features)

    def look(when: str) -> None:
        play.ask(f"the quorum, {when}", "DescribeQuorum", 2, quorum(("__cluster_metadata", [0])))
        play.ask(f"the levels, {when}", *shown)
        play.ask(f"remove another one, {when}", "RemoveRaftVoter", 0, voter())
        play.ask(f"remove itself by another directory, {when}", "RemoveRaftVoter", 0, voter(voter_id=1))
        again = voter(voter_id=1, timeout_ms=1_000, listeners=[ELSEWHERE])
        play.ask(f"add itself, {when}", "AddRaftVoter", 1, again)

    for case, update in {
        "as a downgrade": ("kraft.version", 1, SAFE_DOWNGRADE),
        "as a downgrade to what it is": ("kraft.version", 0, UNSAFE_DOWNGRADE),
        "to what it is": ("kraft.version", 0, UPGRADE),
        "too far": ("kraft.version", 2, UPGRADE),
        "below 0": ("kraft.version", -1, UPGRADE),
        "of no type": ("kraft.version", 1, 0),
    }.items():
        play.ask(case, "UpdateFeatures", 2, features(update))
    play.ask("only validated", "UpdateFeatures", 2, features(("kraft.version", 1, UPGRADE), only=True))
    look("before")
    raised = features(("kraft.version", 1, UPGRADE), ("group.version", 1, UPGRADE))
    play.ask("moved", "UpdateFeatures", 2, raised)
    play.until("it is known", is_finalized)
    look("after")
    for case, update in {
        "once more": ("kraft.version", 1, UPGRADE),
        "as a downgrade to 1": ("kraft.version", 1, SAFE_DOWNGRADE),
        "back": ("kraft.version", 0, SAFE_DOWNGRADE),
        "back, unsafely": ("kraft.version", 0, UNSAFE_DOWNGRADE),
        "back as an upgrade": ("kraft.version", 0, UPGRADE),
    }.items():
        play.ask(case, "UpdateFeatures", 2, features(update))
    for kill in (False, True):
        play.restart(kill=kill)
        play.until("it is known", is_finalized)
        look("after a kill" if kill else "after a restart")
