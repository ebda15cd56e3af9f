"""barnabas as a container of testcontainers: copy this file into your tests. It needs the image alone.

from barnabas_container import BarnabasContainer

with BarnabasContainer() as kafka:
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
"""

from __future__ import annotations

import time

from testcontainers.core.container import DockerContainer

PORT = 9092
NETWORK_PORT = 29092
ADVERTISED = "/tmp/advertised"  # noqa: S108, a file inside of the container

# Which port of the machine leads to the container is known once it runs, so it waits for that.
WAIT_AND_START = (
    f"until [ -s {ADVERTISED} ]; do sleep 0.02; done; "
    f'KAFKA_ADVERTISED_LISTENERS="$(cat {ADVERTISED})" exec /entrypoint.sh'
)


class BarnabasContainer(DockerContainer):
    """A broker for the tests on this machine, at `bootstrap`, and for containers of its network, at `NAME:29092`."""

    def __init__(self, image: str = "barnabas", alias: str = "kafka", startup_timeout_s: float = 60) -> None:
        super().__init__(image)
        self._alias = alias
        self._startup_timeout_s = startup_timeout_s
        self.with_exposed_ports(PORT)
        self.with_kwargs(entrypoint=["sh", "-c", WAIT_AND_START])
        self.with_env("KAFKA_LISTENERS", f"OUTSIDE://0.0.0.0:{PORT},INSIDE://0.0.0.0:{NETWORK_PORT}")
        self.with_env("KAFKA_LISTENER_SECURITY_PROTOCOL_MAP", "OUTSIDE:PLAINTEXT,INSIDE:PLAINTEXT")
        self.with_env("KAFKA_INTER_BROKER_LISTENER_NAME", "INSIDE")

    @property
    def bootstrap(self) -> str:
        return f"{self.get_container_host_ip()}:{self.get_exposed_port(PORT)}"

    def start(self) -> BarnabasContainer:
        super().start()
        advertised = f"OUTSIDE://{self.bootstrap},INSIDE://{self._alias}:{NETWORK_PORT}"
        self.exec(["sh", "-c", f"echo {advertised} >{ADVERTISED}.new && mv {ADVERTISED}.new {ADVERTISED}"])
        deadline_s = time.monotonic() + self._startup_timeout_s
        while not any(b"started" in stream for stream in self.get_logs()):
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"no broker after {self._startup_timeout_s} s: {self.get_logs()}")
            time.sleep(0.02)
        return self
