"""The host name that a request was sent to.

A stranger's page, open in a browser on this machine, can send requests to this machine by a name of its own that it has
point here (DNS rebinding), and then read the answers as its own. The header `Host` has that name, and no page can set
it. So a listener for this machine only serves requests that use one of this machine's names.
"""

from __future__ import annotations

from typing import Final

LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")


def host_name(host: str) -> str:
    """The name in a header `Host`, without the port and in lower case. An IPv6 address keeps its brackets."""
    name = host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]
    return name.lower()
