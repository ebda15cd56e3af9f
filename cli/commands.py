"""The commands: what each is for, where its code is, and its heading in `barnabas --help`.

A command's code is only imported when it is called: `barnabas --help` only reads this table.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Command(NamedTuple):
    """`module` has `add_arguments(parser)`, and `run(options)`, which returns the exit status. `verbs` are the words
    that may come first. Without one, `verbs[0]` is meant."""

    name: str
    module: str
    summary: str
    verbs: tuple[str, ...] = ()


HEADINGS: Final[dict[str, tuple[Command, ...]]] = {
    "write and read records": (
        Command(
            "produce", "cli.produce", "write records from lines, files or JSON lines, also in transactions"
        ),
        Command("consume", "cli.consume", "read records as they arrive, or from one place to another"),
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
            "groups of all kinds, and how many records each has left to read; reset, delete",
            ("show", "list", "reset", "delete"),
        ),
        Command(
            "transactions",
            "cli.transactions",
            "transactions, and why readers of committed records wait; abort",
            ("list", "show", "explain", "abort"),
        ),
        Command("console", "cli.console.command", "all of this as a page in the browser, updated live"),
    ),
    "look into files, with no broker": (
        Command(
            "inspect",
            "cli.inspect",
            "show what is in a file or a folder: batches, indexes, checkpoints, metadata",
        ),
        Command(
            "doctor", "cli.doctor", "check a data folder: is it sound, whose is it, what would a start do"
        ),
    ),
    "measure, and type less": (
        Command("bench", "cli.bench", "measure how fast a Kafka is, with a line to paste"),
        Command("completion", "cli.completion", "completion for bash, zsh and tcsh"),
    ),
}

COMMANDS: Final = {command.name: command for commands in HEADINGS.values() for command in commands}
