"""Commands that are printed for pasting: quoted for a shell, with the options that say which Kafka is meant."""

from __future__ import annotations

import argparse
import shlex
from typing import Final

SECRET_WORDS: Final = ("password", "secret", "key", "jaas", "oauthbearer.config")


def in_shell(text: str) -> str:
    """Quote a text as a shell's word. Unprintable characters are written as `$'...'`, which bash and zsh know."""
    if text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(map(_escaped, text)) + "'"


def option_in_shell(option: str, value: str) -> str:
    """Return an option with its value, which may begin with a dash."""
    return f"{option}{'=' if value.startswith('-') else ' '}{in_shell(value)}"


def which_kafka(options: argparse.Namespace) -> str:
    """Return the options that say which Kafka is meant, to add to another command. Secrets are left out: see
    `secrets_again`."""
    parts = [
        option_in_shell(option, value)
        for option, value in (("--bootstrap", options.bootstrap), ("--config", options.config))
        if value is not None
    ]
    parts += [option_in_shell("-X", text) for text in options.settings if not _is_secret(text)]
    return "".join(f" {part}" for part in parts)


def secrets_again(options: argparse.Namespace) -> str | None:
    """Return a reminder of the secrets that `which_kafka` left out, or None."""
    names = [text.partition("=")[0].strip() for text in options.settings if _is_secret(text)]
    if not names:
        return None
    return f"add what isn't printed to pasted commands: {', '.join(f'-X {name}=…' for name in names)}"


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
