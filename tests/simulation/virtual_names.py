"""The names of hosts in a world, from a table."""

from __future__ import annotations

from ipaddress import ip_address

from broker.environment.network import plain_host


class VirtualNames:
    def __init__(self) -> None:
        self.table: dict[str, str] = {}
        """The address of each name. Other names can't be resolved."""

    def address_of(self, host: str) -> str | None:
        try:
            return self.address_at_once(host)
        except LookupError:
            return self.table.get(host)

    def address_at_once(self, host: str) -> str:
        try:
            return str(ip_address(plain_host(host)))
        except ValueError:
            raise LookupError(host) from None
