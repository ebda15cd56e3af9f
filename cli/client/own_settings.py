"""The librdkafka settings that the commands' own client knows.

It refuses unknown security settings: a typo, or something that it can't do, must not be ignored silently. Other
librdkafka settings are for producers and consumers, and may be in the same file.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

from cli.errors import CommandUsageError

KNOWN: Final = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.username",
    "sasl.password",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
    "enable.ssl.certificate.verification",
)
FAMILIES: Final = ("ssl.", "sasl.", "security.", "enable.ssl.", "enable.sasl.")
LIKENESS: Final = 0.8
"""Another family's name that is at least this similar is a typo of one of these: `secruity.protocol`."""


def check_names(names: Iterable[str]) -> None:
    """Raise CommandUsageError for an unknown name, with the nearest known one."""
    for name in names:
        if name in KNOWN:
            continue
        in_family = name.startswith(FAMILIES)
        nearest = difflib.get_close_matches(name, KNOWN, 1, 0.0 if in_family else LIKENESS)
        if nearest:
            raise CommandUsageError(
                f"this command doesn't know {name}; the nearest that it knows is {nearest[0]}"
            )
