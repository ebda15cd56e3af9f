"""Whether the broker of this container answers: ApiVersions on its first listener. The exit status is 0 or 1."""

import os
import re
import socket
import sys
from collections.abc import Iterator

PATIENCE_S = 5
REQUEST = b"\0\0\0\x0a\0\x12\0\0\0\0\0\7\xff\xff"  # ApiVersions v0, correlation id 7, no client id


FILE = os.path.join(os.environ.get("BARNABAS_CONFIG", "/mnt/shared/config"), "server.properties")


def address() -> tuple[str, int]:
    """Where the first listener is that is no controller's, as `entrypoint.sh` and the broker find it; of a node that is
    nothing else, the controller's."""
    of_controller = None
    for listeners in said():
        for name, host, port in re.findall(r"(\w+)://([^,]*):(\d+)", listeners):
            found = ("localhost" if host in ("", "0.0.0.0", "[::]") else host.strip("[]")), int(port)  # noqa: S104
            if name.upper() != "CONTROLLER":
                return found
            of_controller = of_controller or found
    return of_controller or ("localhost", 9092)


def said() -> Iterator[str]:
    """What environment and file say of listeners, the strongest first."""
    yield os.environ.get("KAFKA_LISTENERS") or os.environ.get("KAFKA_CFG_LISTENERS") or ""
    try:
        with open(FILE, encoding="utf-8") as file:
            yield from re.findall(r"^\s*listeners\s*[=:\s]\s*(.*)$", file.read(), re.MULTILINE)
    except OSError:
        pass
    advertised = (
        os.environ.get("KAFKA_ADVERTISED_LISTENERS") or os.environ.get("KAFKA_CFG_ADVERTISED_LISTENERS") or ""
    )
    yield re.sub(r"://[^,]*:", "://:", advertised)


try:
    with socket.create_connection(address(), PATIENCE_S) as connection:
        connection.settimeout(PATIENCE_S)
        connection.sendall(REQUEST)
        answer = b""
        while len(answer) < 10:
            piece = connection.recv(10 - len(answer))
            if not piece:
                sys.exit("the connection was closed")
            answer += piece
except OSError as error:
    sys.exit(f"no answer at {address()}: {error}")
sys.exit(None if answer[4:] == b"\0\0\0\7\0\0" else f"not a broker's answer: {answer!r}")
