"""Commands that are printed for their reader to paste: each word as a shell takes it, with what says which Kafka is
meant."""

from __future__ import annotations

import argparse
import shlex
from typing import Final

SECRET_WORDS: Final = ("password", "secret", "key", "jaas", "oauthbearer.config")


def in_shell(text: str) -> str:
    """As a word that a shell takes. What can't be printed is written as `$'...'`, which bash and zsh know."""
    if text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(map(_escaped, text)) + "'"


def option_in_shell(option: str, value: str) -> str:
    """An option with its value, which may begin with a dash."""
    return f"{option}{'=' if value.startswith('-') else ' '}{in_shell(value)}"


def which_kafka(options: argparse.Namespace) -> str:
    """The options that say it, to be added to another command. Secrets are left out: see `secrets_again`."""
    parts = [
        option_in_shell(option, value)
        for option, value in (("--bootstrap", options.bootstrap), ("--config", options.config))
        if value is not None
    ]
    parts += [option_in_shell("-X", text) for text in options.settings if not _is_secret(text)]
    return "".join(f" {part}" for part in parts)


def secrets_again(options: argparse.Namespace) -> str | None:
    """What is to be said of those that `which_kafka` left out; None where there are none."""
    names = [text.partition("=")[0].strip() for text in options.settings if _is_secret(text)]
    if not names:
        return None
    return f"commands to paste need again what isn't printed: {', '.join(f'-X {name}=…' for name in names)}"


def _is_secret(text: str) -> bool:
    name = text.partition("=")[0].strip().lower()
    return any(word in name for word in SECRET_WORDS) and not name.endswith(".location")


def _escaped(char: str) -> str:
    if char in "'\\":
        return f"\\{char}"
    if char.isprintable():
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x80 else f"\\U{code:08x}"
