"""The plan of a round of the workload."""

from __future__ import annotations

from dataclasses import dataclass

from tests.clients.checker.roles import Kind, Role, copying, transacting

KILL_A_CLIENT = "kill a client"
CRASH_A_CLIENT = "crash a client"
"""Within a transaction, before its commit."""
STOP_A_CLIENT = "stop a client"
"""Let another one take over its transactional id, and have it go on as if nothing had been."""
PAUSE_A_CLIENT = "pause a client"
"""The same within a transaction, before its commit."""
KILL_THE_BROKER = "kill the broker"
OF_CLIENTS = (KILL_A_CLIENT, CRASH_A_CLIENT, STOP_A_CLIENT, PAUSE_A_CLIENT)
FAULTS = (*OF_CLIENTS, KILL_THE_BROKER)

CONSUMER_GROUPS = {
    "group.consumer.min.session.timeout.ms": 1_000,
    "group.consumer.session.timeout.ms": 1_000,
    "group.consumer.min.heartbeat.interval.ms": 200,
    "group.consumer.heartbeat.interval.ms": 200,
}
"""Settings of whoever serves: members that were killed are soon given up."""


@dataclass(frozen=True, slots=True)
class Plan:
    """seed: of what clients do, and of what befalls whom; how their steps interleave is up to the machine.

    operations: transactions of those that write and read, while nothing but clients is struck; those go on meanwhile,
        and the others keep pace with them.
    roles: a client for each.
    faults: of OF_CLIENTS, or of those of who serves them; what happens, with as many operations before each as
        after the last.
    java: the class path of `CheckerClient`, where there are roles of Java's.
    waits: transactions may take longer than they are allowed.
    """

    seed: int
    operations: int
    roles: tuple[Role, ...] = (*transacting(3), copying())
    java: str | None = None
    partitions: int = 2
    topics: int = 2
    faults: tuple[str, ...] = ()
    waits: bool = False

    @property
    def copying_groups(self) -> list[str]:
        return sorted({role.group for role in self.roles if role.kind is Kind.COPIES})

    @property
    def groups(self) -> list[str]:
        return sorted({role.group for role in self.roles if role.group})
