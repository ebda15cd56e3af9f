"""By which name a request has come.

A page of somebody else's, open in a browser on this machine, can send requests to this machine by a name of its own
that it lets point here (DNS rebinding), and then read the answers as its own. The name stands in `Host`, which no page
can set: who listens for this machine alone serves those alone that come by a name of this machine's.
"""

from __future__ import annotations

from typing import Final

LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")


def host_name(host: str) -> str:
    """Of a header `Host`, without its port and in small letters; an address of IPv6 has its brackets."""
    name = host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]
    return name.lower()
