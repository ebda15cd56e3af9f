"""The commands: what each is for, where it is, and under which heading `barnabas --help` shows it.

Nothing of a command is imported before it is asked for: `barnabas --help` reads this table alone.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Command(NamedTuple):
    """`module` has `add_arguments(parser)`, and `run(options)`, which answers the exit status. `verbs` are the words
    that may come first; without one it is `verbs[0]` that is meant."""

    name: str
    module: str
    summary: str
    verbs: tuple[str, ...] = ()


HEADINGS: Final[dict[str, tuple[Command, ...]]] = {
    "write and read records": (
        Command("produce", "cli.produce", "write records: lines, files, JSON lines; in transactions"),
        Command("consume", "cli.consume", "read records: as they come, or from here to there"),
    ),
    "look around, and ask why": (
        Command(
            "topics",
            "cli.topics",
            "topics and their partitions; create, delete, configs",
            ("show", "list", "create", "delete", "configs"),
        ),
        Command(
            "groups",
            "cli.groups",
            "groups of all kinds, and how many records each has left; reset, delete",
            ("show", "list", "reset", "delete"),
        ),
        Command(
            "transactions",
            "cli.transactions",
            "transactions, and why readers of committed records don't get on; abort",
            ("list", "show", "explain", "abort"),
        ),
        Command(
            "console", "cli.console.command", "a page in the browser: all of it, as it happens over time"
        ),
    ),
    "look into files, with no broker": (
        Command(
            "inspect", "cli.inspect", "what is in a file or a folder: batches, indexes, checkpoints, metadata"
        ),
        Command("doctor", "cli.doctor", "is a data folder sound, whose is it, what would a start do"),
    ),
    "measure, and be quicker": (
        Command("bench", "cli.bench", "how quick a Kafka is, with a line to paste"),
        Command("completion", "cli.completion", "completion for bash, zsh and tcsh"),
    ),
}

COMMANDS: Final = {command.name: command for commands in HEADINGS.values() for command in commands}
