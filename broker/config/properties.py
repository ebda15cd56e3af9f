"""Java's .properties files, as java.util.Properties.load reads them, with the line each setting starts on.

One difference: Java reads Latin-1. A file that is valid UTF-8 is read as that, so that a folder's name comes
out as its owner wrote it.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.config.errors import UsageError

_WHITE = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    """One setting of a file; `line` counts from 1."""

    name: str
    value: str
    line: int


def read_properties(path: str) -> list[Property]:
    """The settings of a file, in their order, a name that stands twice twice. Raises UsageError."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return parse_properties(text, path)


def parse_properties(text: str, path: str = "server.properties") -> list[Property]:
    """The settings in a file's text. Raises UsageError for a broken unicode escape, the only error."""
    found = []
    for line, logical in _logical_lines(text):
        key, value = _split(logical)
        try:
            found.append(Property(_unescaped(key), _unescaped(value), line))
        except ValueError:
            raise UsageError(f"{path}:{line}: Malformed \\uxxxx encoding.") from None
    return found


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Lines without comments, blanks and leading white space, joined where a backslash ends one."""
    lines: list[tuple[int, str]] = []
    pending: tuple[int, str] | None = None
    for number, natural in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        line = natural.lstrip(_WHITE)
        if pending is None:
            if not line or line[0] in "#!":
                continue
            start, so_far = number, ""
        else:
            start, so_far = pending
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending = (start, so_far + line[:-1])
        else:
            pending = None
            lines.append((start, so_far + line))
    if pending is not None:
        lines.append(pending)
    return [(number, line) for number, line in lines if line]


def _split(line: str) -> tuple[str, str]:
    """Key and value: the key ends at the first `=`, `:` or white space that no backslash escapes."""
    end = 0
    while end < len(line) and line[end] not in "=:" + _WHITE:
        end += 2 if line[end] == "\\" else 1
    value = line[end:].lstrip(_WHITE)
    if value[:1] in ("=", ":"):
        value = value[1:].lstrip(_WHITE)
    return line[:end], value


def _unescaped(text: str) -> str:
    """Raises ValueError for a \\u without four hexadecimal digits."""
    if "\\" not in text:
        return text
    out = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\":
            out.append(character)
            continue
        escaped = text[position : position + 1]
        position += 1
        if escaped == "u":
            digits = text[position : position + 4]
            position += 4
            if len(digits) != 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
                raise ValueError(digits)
            out.append(chr(int(digits, 16)))
        else:
            out.append(_ESCAPES.get(escaped, escaped))
    # Java's characters are UTF-16: a pair of escapes is one character.
    return "".join(out).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
