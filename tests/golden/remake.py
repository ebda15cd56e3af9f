"""`make golden`: the vectors of messages, made anew by Apache Kafka's own classes.

What each vector holds stays; what Kafka writes of it is written down again, and versions and messages that there was
none of are added. Run it when Kafka's version changes, and look at what it says has changed.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.apache_kafka import tool

PROGRAM = Path(__file__).parent / "java" / "GoldenMessages.java"
VECTORS = Path(__file__).parent / "vectors" / "messages.jsonl.gz"
TIMEOUT_S = 120


def stored() -> list[str]:
    """The lines as they are."""
    return gzip.decompress(VECTORS.read_bytes()).decode().splitlines()


def remade(lines: list[str]) -> list[str]:
    """The lines as Kafka writes them now. Needs Java and Kafka's jars."""
    with tempfile.TemporaryDirectory() as folder:
        compiled = ["javac", "-cp", tool("classpath").strip(), "-d", folder, str(PROGRAM)]
        subprocess.run(compiled, check=True, timeout=TIMEOUT_S)
        os.environ["KAFKA_CP"] = folder
        try:
            given = "".join(f"{line}\n" for line in lines)
            return tool("class", "GoldenMessages", stdin=given, timeout_s=TIMEOUT_S).splitlines()
        finally:
            del os.environ["KAFKA_CP"]


def names(lines: set[str]) -> str:
    """Of the vectors, for the eye."""
    found = {f"{vector['message']} v{vector['version']}" for vector in map(json.loads, lines)}
    return ", ".join(sorted(found)) or "none"


def main() -> None:
    """Writes the vectors, and says which aren't as they were."""
    before = stored()
    now = remade(before)
    VECTORS.write_bytes(gzip.compress("".join(f"{line}\n" for line in now).encode(), mtime=0))
    print(
        f"{len(now)} vectors",
        f"new: {names({*now} - {*before})}",
        f"gone: {names({*before} - {*now})}",
        sep="\n",
    )


if __name__ == "__main__":
    sys.exit(main())
