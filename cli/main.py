"""Finds the command, runs it, and turns errors into one line and an exit status."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from cli.commands import COMMANDS, HEADINGS, Command
from cli.errors import FAILED, INTERRUPTED, CommandError, CommandUsageError
from cli.output import say, to_nowhere

STARTS = (
    ("barnabas", "start a broker on 127.0.0.1:9092 (its options are below)"),
    ("barnabas cluster", "start three brokers and a controller"),
    ("barnabas prove", "test whether a program is exactly once, whatever fails at each step"),
    ("barnabas format", "format folders as kafka-storage format does"),
)


def main(arguments: Sequence[str]) -> int:
    """Run the command and return the exit status: 0, or one of `cli.errors`."""
    _stand_in_for_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(
                errors="backslashreplace"
            )  # a terminal with another alphabet shows what it can
    try:
        return _run(arguments)
    except CommandError as error:
        say(f"barnabas: {error}")
        return error.status
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        to_nowhere(sys.stdout)  # the reader of our output has seen enough, as `head` has
        return 0
    except OSError as error:  # mostly about the output: input and requests have their own errors
        say(f"barnabas: {error}")
        to_nowhere(sys.stdout)
        return FAILED


def _stand_in_for_closed_streams() -> None:
    """Replace standard streams that the parent closed. Python has None for them, and the first file or socket would get
    their number. Reading and writing then fails; messages are lost."""
    for name, mode, access in (
        ("stdin", "r", os.O_WRONLY),
        ("stdout", "w", os.O_RDONLY),
        ("stderr", "w", os.O_WRONLY),
    ):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, access), mode))


def _run(arguments: Sequence[str]) -> int:
    if arguments and arguments[0] in ("-h", "--help", "help"):
        sys.stdout.write(_overview())
        sys.stdout.flush()
        return 0
    command = COMMANDS.get(arguments[0]) if arguments else None
    if command is None:
        known = [*COMMANDS, "cluster", "format", "prove"]
        raise CommandUsageError(_unknown(arguments[0] if arguments else "", known, "command", "barnabas"))
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGINT, _interrupt)
    module = importlib.import_module(command.module)
    parser = Parser(prog=f"barnabas {command.name}", description=module.__doc__, allow_abbrev=False)
    if command.verbs:
        parser.epilog = (
            f"Each verb has its own options and --help. barnabas {command.name} {command.verbs[0]} --help "
            "shows the options without a verb."
        )
    module.add_arguments(parser)
    options = parser.parse_args(_with_verb(command, arguments[1:]))
    status: int = module.run(options)
    sys.stdout.flush()
    return status


class Parser(argparse.ArgumentParser):
    """Argparse's parser, with errors in one line."""

    def __init__(self, *arguments: object, **keywords: object) -> None:
        keywords.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(*arguments, **keywords)  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        raise CommandUsageError(f"{message} ({self.prog} --help lists the options)")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Argparse's own method ignores a full disk."""
        file.write(message)
        file.flush()

    def _match_arguments_partial(self, actions: Any, arg_strings_pattern: str) -> list[int]:
        """Allow words after options: `--whole FILE`. Before 3.12.7, Python takes an optional list for empty at the
        first option."""
        counts = super()._match_arguments_partial(actions, arg_strings_pattern)
        if "O" in arg_strings_pattern[sum(counts) :]:
            while counts and not counts[-1]:
                counts.pop()
        return list(counts)


def _with_verb(command: Command, arguments: Sequence[str]) -> list[str]:
    first = arguments[0] if arguments else ""
    if not command.verbs or first in command.verbs or first in ("-h", "--help"):
        return [*arguments]
    if first.startswith("-"):
        for verb in command.verbs:
            if verb in arguments:
                raise CommandUsageError(f"the verb comes first: barnabas {command.name} {verb} …")
    elif first and command.verbs[0] != "show":  # only a verb may come here
        raise CommandUsageError(_unknown(first, command.verbs, "verb", f"barnabas {command.name}"))
    return [command.verbs[0], *arguments]


def _unknown(name: str, known: Sequence[str], what: str, whose: str) -> str:
    """`whose`: the command that has them, as one types it: `barnabas`, or `barnabas transactions`."""
    from difflib import get_close_matches

    near = get_close_matches(name, known, 1)
    meant = f", but `{whose} {near[0]}`" if near else ""
    return f"there is no {what} {name}{meant} ({whose} --help lists them)"


def _overview() -> str:
    """Return the text of `barnabas --help`: the commands by purpose, then the broker's own options."""
    from broker.process.command_line import broker_help

    lines = ["barnabas: a Kafka broker in one small process, and a command line for any Kafka.", ""]
    lines += ["start one:"]
    lines += [f"  {name:<24}{summary}" for name, summary in STARTS]
    for heading, commands in HEADINGS.items():
        lines += ["", f"{heading}:"]
        lines += [f"  barnabas {each.name:<15}{each.summary}" for each in commands]
    lines += [
        "",
        "Each has its own --help. They connect to --bootstrap, BARNABAS_BOOTSTRAP or localhost:9092.",
        "",
    ]
    return "\n".join([*lines, broker_help()])


def _interrupt(number: int, _frame: object) -> None:
    raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)
