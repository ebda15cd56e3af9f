"""What a `server.properties` says of a setting, by the rules of java.util.Properties.load: the last line wins.

The broker reads such files in `broker.config.properties`, of which the front imports nothing.
"""

from __future__ import annotations

import re

_LOGICAL_LINE = re.compile(r"^[ \t\f]*(?:[#!].*|(?:[^\\\n]+|\\[\s\S])*)", re.MULTILINE)
_LINE_BREAK = re.compile(r"\\\n[ \t\f]*")
_PROPERTY = re.compile(r"[ \t\f]*((?:[^\\=: \t\f]|\\.)+)(?:[ \t\f]*[=:][ \t\f]*|[ \t\f]+|$)(.*)", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def value_in(text: str, name: str) -> str | None:
    """None where it isn't there. Escapes of what isn't ASCII are left as they are."""
    value = None
    for line in _LOGICAL_LINE.findall(text.replace("\r\n", "\n").replace("\r", "\n")):
        found = _PROPERTY.fullmatch(_LINE_BREAK.sub("", line))
        if found is not None and _ESCAPED.sub(r"\1", found[1]) == name:
            value = _ESCAPED.sub(r"\1", found[2])
    return value
