"""The roles of the workload's clients, and their libraries."""

from __future__ import annotations

import enum
import random
from collections.abc import Sequence
from dataclasses import dataclass

JAVA = "Java"
MODULES = {
    "confluent-kafka": "tests.clients.checker.confluent_worker",
    "kafka-python": "tests.clients.checker.kafka_python_worker",
    "aiokafka": "tests.clients.checker.aiokafka_worker",
}
"""Of the libraries but Java's: the module that a client process runs."""
CLASSIC, CONSUMER = "classic", "consumer"
"""The protocols of groups."""


class Kind(enum.Enum):
    """TRANSACTS: writes and reads in transactions. COPIES: copies what its group gets, exactly once. SENDS: writes as
    an idempotent producer, without transactions. READS: reads as a member of a group, and commits the offsets."""

    TRANSACTS = "transacts"
    COPIES = "copies"
    SENDS = "sends"
    READS = "reads"


@dataclass(frozen=True, slots=True)
class Role:
    """protocol: of the group, the same for all its members."""

    kind: Kind
    library: str = "confluent-kafka"
    group: str = ""
    protocol: str = CLASSIC

    def __str__(self) -> str:
        group = f" in {self.group}, {self.protocol}" if self.group else ""
        return f"{self.library} {self.kind.value}{group}"


def transacting(count: int, libraries: Sequence[str] = ("confluent-kafka",)) -> tuple[Role, ...]:
    """Roles that do transactions, with the libraries in turn."""
    return tuple(Role(Kind.TRANSACTS, libraries[index % len(libraries)]) for index in range(count))


def copying(library: str = "confluent-kafka", protocol: str = CLASSIC) -> Role:
    """A member of the one group of that protocol that copies."""
    return Role(Kind.COPIES, library, f"copying-{protocol}", protocol)


def reading(library: str = "confluent-kafka", protocol: str = CLASSIC) -> Role:
    """A member of the one group of that protocol that reads."""
    return Role(Kind.READS, library, f"reading-{protocol}", protocol)


def mixed(clients: int, chance: random.Random, *, java: bool) -> tuple[Role, ...]:
    """So many that do transactions, with all libraries by turns; beside them groups of both protocols, one of two
    members and one of one to copy, one to read, and idempotent producers of two libraries."""
    libraries = [*MODULES, *([JAVA] if java else [])]
    chance.shuffle(libraries)
    of_consumer = [each for each in libraries if each in ("confluent-kafka", JAVA)]
    of_copies = [each for each in libraries if each != "aiokafka"]
    return (
        *transacting(clients, libraries),
        copying(of_copies[0]),
        copying(of_copies[1]),
        copying(of_consumer[0], CONSUMER),
        chance.choice([reading(libraries[0]), reading("aiokafka"), reading(of_consumer[-1], CONSUMER)]),
        *(Role(Kind.SENDS, each) for each in libraries[-2:]),
    )
