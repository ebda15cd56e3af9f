"""Renews the tables in the documents from the declarations that the broker itself works by.

`python docs/tables.py` writes them, `--check` only says which are out of date (exit status 1).
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from broker.config.broker_config import AT_MOST_ONE, DEFAULTS  # noqa: E402
from broker.config.broker_definitions import BROKER_ROWS, DYNAMIC_ONLY_ROWS  # noqa: E402
from broker.config.definitions import Row  # noqa: E402
from broker.config.group_config import GROUP_ROWS  # noqa: E402
from broker.config.reconfiguration import ONLY_AT_START, ONLY_PER_LISTENER  # noqa: E402
from broker.config.topic_config import TOPIC_ROWS, TOPIC_SYNONYMS  # noqa: E402
from broker.handlers import CONTROLLER_HANDLERS, HANDLERS  # noqa: E402
from coordinator.group.streams.states import STREAMS_GROUP_STATES, TASK_STEPS, StreamsMemberState  # noqa: E402
from coordinator.share_partition.states import (  # noqa: E402
    ACKNOWLEDGED_AS,
    ARCHIVED,
    ARCHIVING,
    ENTERED_FROM,
    ON_INITIALIZE,
    AcknowledgeType,
    PartitionState,
    RecordState,
)
from coordinator.transaction import states  # noqa: E402
from docs.effects import effect  # noqa: E402
from protocol.apis import APIS, Api  # noqa: E402
from protocol.errors import Error  # noqa: E402


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(str(cell) for cell in line) + " |\n" for line in lines)


def versions(api: Api, lowest: int | None = None) -> str:
    first = api.min_version if lowest is None else lowest
    return f"{first}" if first == api.max_version else f"{first} – {api.max_version}"


def served_apis() -> str:
    """The APIs that are served and advertised."""
    return table(
        ["API", "Key", "Advertised", "Served"],
        [
            [api.name, key, versions(api), versions(api, max(api.min_version, api.first_decodable))]
            for key, api in sorted(APIS.items())
            if key in HANDLERS
        ],
    )


def controllers_apis() -> str:
    """The APIs that are served at a controller's listeners."""
    return table(
        ["API", "Key", "Served"],
        [[APIS[key].name, key, versions(APIS[key])] for key in sorted(CONTROLLER_HANDLERS)],
    )


def missing_apis() -> str:
    """The APIs that a Kafka 4.4 broker advertises and this one does not."""
    missing = [
        [api.name, key, versions(api)]
        for key, api in sorted(APIS.items())
        if key not in HANDLERS and api.advertised and not api.of_controllers
    ]
    return table(["API", "Key", "Kafka 4.3"], missing) if missing else "There are none.\n"


def transaction_moves() -> str:
    """The legal moves of a transaction, as a diagram."""
    names = states.STATE_NAMES
    moves = [
        f"    {names[source]} --> {names[target]}\n"
        for target, sources in states.ENTERED_FROM.items()
        for source in sorted(sources)
        if target is not states.DEAD
    ]
    return "```mermaid\nstateDiagram-v2\n    [*] --> Empty\n" + "".join(moves) + "```\n"


def transaction_requests() -> str:
    """The answer to each request in each state, if it has the current producer id and epoch."""

    def said(answer: states.ErrorOrState) -> str:
        if isinstance(answer, Error):
            return "answered again" if answer is Error.NONE else answer.name
        return "→ " + states.STATE_NAMES[answer]

    return table(
        ["State", "InitProducerId", "AddPartitions", "Commit v0–4", "Abort v0–4", "Commit v5", "Abort v5"],
        [
            [
                states.STATE_NAMES[state],
                said(states.INIT_PRODUCER_ID[state]),
                said(states.ADD_PARTITIONS[state]),
                said(states.END_TXN_V1[state][states.TO_COMMIT]),
                said(states.END_TXN_V1[state][states.TO_ABORT]),
                said(states.END_TXN_V2[state][states.TO_COMMIT][states.CURRENT]),
                said(states.END_TXN_V2[state][states.TO_ABORT][states.CURRENT]),
            ]
            for state in states.TransactionState
            if state not in (states.DEAD, states.PREPARE_EPOCH_FENCE)
        ],
    )


def _name(state: RecordState) -> str:
    return state.name.capitalize()


def share_record_moves() -> str:
    """The legal moves of a record that a share group has in flight, but for those from ARCHIVING that nothing takes."""
    moves = [
        f"    {_name(source)} --> {_name(target)}\n"
        for target, sources in ENTERED_FROM.items()
        for source in sorted(sources)
        if source is not ARCHIVING or target is ARCHIVED
    ]
    return "```mermaid\nstateDiagram-v2\n    [*] --> Acquired\n" + "".join(moves) + "```\n"


def share_acknowledgements() -> str:
    """The next state of an acquired record."""
    return table(
        ["Acknowledged as", "The record is"],
        [
            [kind.name, _name(ACKNOWLEDGED_AS[kind]) if kind in ACKNOWLEDGED_AS else "acquired for longer"]
            for kind in AcknowledgeType
        ],
    )


def share_partition_states() -> str:
    """The answer to a fetch in each state."""

    def said(answer: Error | PartitionState) -> str:
        return f"→ {answer.name}" if isinstance(answer, PartitionState) else answer.name

    return table(
        ["State of a share partition", "Meaning", "Answer to a fetch"],
        [[state.name, state.value, said(ON_INITIALIZE[state])] for state in PartitionState],
    )


def streams_group_states() -> str:
    """The state of a streams group in each situation."""

    def said(holds: bool) -> str:
        return "yes" if holds else "no"

    return table(
        ["Members", "Valid topology", "Needs a new assignment", "All reconciled", "State"],
        [[*map(said, cell), state.value] for cell, state in STREAMS_GROUP_STATES.items()],
    )


def streams_task_steps() -> str:
    """The next step of a member of a streams group. Each state looks at something else of the member."""
    asked = {
        StreamsMemberState.STABLE: ("at an older epoch than the target's", "at the target's epoch"),
        StreamsMemberState.UNREVOKED_TASKS: (
            "still owns tasks that it has to give up",
            "has given up all tasks that it had to",
        ),
        StreamsMemberState.UNRELEASED_TASKS: ("", ""),
        StreamsMemberState.UNKNOWN: ("owns something", "owns nothing"),
    }
    return table(
        ["State of a member", "Situation", "Next step"],
        [[state.name, asked[state][holds], step.value] for (state, holds), step in TASK_STEPS.items()],
    )


def _default(text: str | None) -> str:
    if text is None:
        return "null"
    return f"`{text}`" if text else "(empty)"


def _alterable(name: str, mode: str) -> str:
    """Whether a broker's setting can be altered while the broker runs, and for what."""
    if name in ONLY_AT_START or mode == "read-only":
        return "no"
    if name in ONLY_PER_LISTENER:
        return "for a listener"
    return "for a broker" if mode == "per-broker" else "yes"


def _settings(rows: dict[str, Row], *, of_brokers: bool) -> str:
    """Name, type, default, whether it changes while the broker runs, effect; where ours differs, both defaults."""
    lines = []
    for name, (kind, default, _, _, mode) in sorted(rows.items()):
        shown = _default(default)
        does = effect(name)
        own = DEFAULTS.get(name) if of_brokers else None
        if own is not None:
            shown = f"`{own.value}` (Kafka: {_default(default)})"
        if name in AT_MOST_ONE and of_brokers and does == "yes":
            does = "yes, but a single node uses at most 1"
        line = [f"`{name}`", kind.lower(), shown, does]
        if of_brokers:
            line.insert(3, _alterable(name, mode))
        lines.append(line)
    head = ["Setting", "Type", "Default", "Effect"]
    if of_brokers:
        head.insert(3, "Alterable")
    return table(head, lines)


def broker_settings() -> str:
    """All of a broker's settings, and whether they do something."""
    return _settings({**BROKER_ROWS, **DYNAMIC_ONLY_ROWS}, of_brokers=True)


def own_defaults() -> str:
    """The defaults that aren't Kafka's, with the reasons."""
    rows = {**BROKER_ROWS, **DYNAMIC_ONLY_ROWS}
    return table(
        ["Setting", "Here", "In Kafka", "Why"],
        [
            [f"`{name}`", _default(own.value), _default(rows[name][1]), own.reason]
            for name, own in DEFAULTS.items()
        ],
    )


def topic_settings() -> str:
    """All of a topic's settings, with those of a broker that are their defaults."""
    behind = {name: ", ".join(f"`{each}`" for each, _ in found) for name, found in TOPIC_SYNONYMS.items()}
    return table(
        ["Setting", "Type", "Default", "Where the broker has it", "Effect"],
        [
            [f"`{name}`", kind.lower(), _default(default), behind.get(name, ""), effect(name)]
            for name, (kind, default, _, _, _) in sorted(TOPIC_ROWS.items())
        ],
    )


def group_settings() -> str:
    """All of a group's settings."""
    return _settings(GROUP_ROWS, of_brokers=False)


TABLES: dict[str, tuple[str, Callable[[], str]]] = {
    "served APIs": ("docs/apis.md", served_apis),
    "controllers' APIs": ("docs/apis.md", controllers_apis),
    "missing APIs": ("GAPS.md", missing_apis),
    "own defaults": ("docs/configuration.md", own_defaults),
    "broker settings": ("docs/configuration.md", broker_settings),
    "topic settings": ("docs/configuration.md", topic_settings),
    "group settings": ("docs/configuration.md", group_settings),
    "transaction moves": ("ARCHITECTURE.md", transaction_moves),
    "transaction requests": ("ARCHITECTURE.md", transaction_requests),
    "share record moves": ("ARCHITECTURE.md", share_record_moves),
    "share acknowledgements": ("ARCHITECTURE.md", share_acknowledgements),
    "share partition states": ("ARCHITECTURE.md", share_partition_states),
    "streams group states": ("ARCHITECTURE.md", streams_group_states),
    "streams task steps": ("ARCHITECTURE.md", streams_task_steps),
}


def renewed(text: str, name: str, content: str) -> str:
    """The document with this table in its place, between the comments that name it."""
    begin, end = f"<!-- table: {name} (make docs) -->", f"<!-- end of {name} -->"
    place = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if not place.search(text):
        raise SystemExit(f"no place for the table of {name}: {begin} … {end}")
    return place.sub(lambda _: f"{begin}\n\n{content}\n{end}", text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only fail where a table is out of date")
    check = parser.parse_args().check
    stale = []
    for name, (document, content) in TABLES.items():
        path = ROOT / document
        before = path.read_text("utf-8")
        after = renewed(before, name, content())
        if after != before:
            stale.append(f"{document}: {name}")
            if not check:
                path.write_text(after, "utf-8")
    if check and stale:
        raise SystemExit("out of date, `make docs` renews them: " + ", ".join(stale))


if __name__ == "__main__":
    main()
