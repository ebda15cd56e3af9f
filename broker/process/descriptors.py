"""How many descriptors the process may have, and who gets how many of them: files of logs, clients, and the rest.

What clients could take of the others' share they would take: a disk that can't be synced for want of a descriptor is no
disk.
"""

from __future__ import annotations

import resource
from typing import NamedTuple

from broker.config.errors import StartError
from storage.files import MOST_RETIRED_FILES

LEAST_DESCRIPTORS = 512

WANTED_DESCRIPTORS = 100_000
"""As Kafka's documentation advises."""

MOST_OPEN_FILES = 900
"""Of logs: 5,000 partitions need no more, since what isn't used lately is closed."""

OTHER_DESCRIPTORS = 64
"""The loop's own, processes beside this one, and what is opened for a moment to be synced."""

UNBOUNDED = (1 << 31) - 1


class DescriptorShares(NamedTuple):
    """How many each may have open at once."""

    files: int
    retired_files: int
    """Those out of use that answers are yet to be read from."""
    connections: int


def raise_limit() -> None:
    """Take as many as the system lets this process have, up to what is wanted; as the JVM does, which takes all. A
    system may have a limit that it doesn't tell (macOS: 10,240): half as many are tried then, and so on. Raises
    StartError where that isn't enough to begin with."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, WANTED_DESCRIPTORS)
    while soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        except (OSError, ValueError):
            wanted //= 2
    if soft != resource.RLIM_INFINITY and soft < LEAST_DESCRIPTORS:
        raise StartError(
            f"this process may have {soft} files and connections open; {LEAST_DESCRIPTORS} are the least that a "
            "broker does with: see ulimit -n"
        )


def shares(backlogs: int, locks: int) -> DescriptorShares:
    """Half of the descriptors go to logs and an eighth to files out of use, but no more than are needed; the rest to
    clients. `backlogs`: how many clients may be accepted together, over all listeners, before they are refused; an
    eighth at most is kept for them. `locks`: log directories."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return DescriptorShares(MOST_OPEN_FILES, MOST_RETIRED_FILES, UNBOUNDED)
    files, retired = min(MOST_OPEN_FILES, soft // 2), min(MOST_RETIRED_FILES, soft // 8)
    others = OTHER_DESCRIPTORS + min(backlogs, soft // 8) + locks
    return DescriptorShares(files, retired, max(soft - files - retired - others, 1))
