"""What an examination finds, as values."""

from enum import Enum
from typing import NamedTuple


class Severity(Enum):
    """How bad it is."""

    NOTE = "note"
    """Nothing is lost, and a start sees to it."""
    WARNING = "warning"
    """A start goes on, and makes anew or sets aside what is wrong."""
    ERROR = "error"
    """Something is lost or can't be read: a partition is offline, or the start is refused."""


class Finding(NamedTuple):
    """One thing that is not as it should be, each text in one line."""

    severity: Severity
    path: str
    what: str
    what_to_do: str


REBUILT = "nothing: the next start makes it anew"
FROM_A_COPY = "put it back from a copy, if there is one; else a start goes on with what is there"
NO_FILE_OF_KAFKAS = "it is no file of Kafka's"
LEFT_ALONE = "nothing: a start leaves it alone. Delete it if it isn't wanted"
