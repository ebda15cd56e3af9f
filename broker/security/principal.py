"""Who sends requests (Kafka: `KafkaPrincipal`)."""

from __future__ import annotations

from typing import NamedTuple

USER_TYPE = "User"


class Principal(NamedTuple):
    """Of the type `User`, where no other kind is made up by whoever authenticates."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal(USER_TYPE, "ANONYMOUS")  # of a connection that says nothing of who is there
