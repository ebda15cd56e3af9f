"""Completion for your shell:

barnabas completion bash > ~/.local/share/bash-completion/completions/barnabas
barnabas completion zsh > ~/.zfunc/_barnabas
"""

from __future__ import annotations

import argparse
import importlib
import sys

from cli.commands import COMMANDS
from cli.errors import USAGE, CommandError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.commands.Command`."""
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"))


def run(options: argparse.Namespace) -> int:
    """See `cli.commands.Command`."""
    try:
        import shtab
    except ImportError:
        raise CommandError(
            "this needs shtab, which isn't installed: pip install 'barnabas[cli]'", USAGE
        ) from None
    sys.stdout.write(shtab.complete(_whole(), options.shell))
    return 0


def _complete_files(parser: argparse.ArgumentParser) -> None:
    """Complete arguments that take a file or a folder. The metavar shows which do."""
    import shtab

    for action in parser._actions:
        if action.metavar in ("FILE", "DIR", "PATH"):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                _complete_files(each)


def _whole() -> argparse.ArgumentParser:
    """Return one parser with all commands."""
    parser = argparse.ArgumentParser(prog="barnabas")
    commands = parser.add_subparsers()
    for command in COMMANDS.values():
        of_it = commands.add_parser(command.name, help=command.summary)
        importlib.import_module(command.module).add_arguments(of_it)
        _complete_files(of_it)
    return parser
