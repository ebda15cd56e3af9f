"""The names of librdkafka's that the commands' own client knows.

Whatever is about security and isn't known is refused: what is mistyped or can't be done must not be left out silently.
Other settings of librdkafka's are for producers and consumers, and may stand in the same file.
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
"""From which on another family's name is one of these, mistyped: `secruity.protocol`."""


def check_names(names: Iterable[str]) -> None:
    """Raises CommandUsageError, with the nearest known name."""
    for name in names:
        if name in KNOWN:
            continue
        in_family = name.startswith(FAMILIES)
        nearest = difflib.get_close_matches(name, KNOWN, 1, 0.0 if in_family else LIKENESS)
        if nearest:
            raise CommandUsageError(
                f"{name} isn't known to this command: {nearest[0]} is the nearest that is"
            )
