"""The users of the table of rights, one for each single right."""

from __future__ import annotations

from broker.security.authorizer import SUPPORTED_OPERATIONS, Operation, ResourceType

ADMIN = "admin"
NOBODY = "nobody"
EVERYTHING = "everything"
OWNER = "owner"
"""May do everything with its own resources, and nothing with others."""

RIGHTS: dict[str, tuple[ResourceType, Operation]] = {
    f"{kind.name.lower()}_{operation.name.lower()}": (kind, operation)
    for kind, operations in SUPPORTED_OPERATIONS.items()
    for operation in operations
}
"""The right of each user of that name, after `may_`, or after `not_` for users with all other rights."""

USERS = (
    NOBODY,
    EVERYTHING,
    OWNER,
    ADMIN,
    *(f"may_{right}" for right in RIGHTS),
    *(f"not_{right}" for right in RIGHTS),
)
CHANGING = "changing"
"""Has the rights that a script gives and takes."""


def password(user: str) -> str:
    return f"{user}-secret"


JAAS = (
    f'org.apache.kafka.common.security.plain.PlainLoginModule required username="{ADMIN}" password="{password(ADMIN)}" '
    + " ".join(f'user_{user}="{password(user)}"' for user in (*USERS, CHANGING))
    + ";"
)
