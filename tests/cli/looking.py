"""`barnabas inspect` and `doctor` in this process, and the folders that they examine."""

from __future__ import annotations

import hashlib
import importlib
import json
import shutil
import tarfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cli.commands import COMMANDS
from cli.main import Parser
from tests.support import kafka_folders

CLEANED = Path(__file__).parents[1] / "data" / "cleaned-partitions"


class Ran(NamedTuple):
    """What a command wrote to its standard output, and how it ended."""

    status: int
    out: str

    @property
    def entries(self) -> list[dict[str, Any]]:
        """The entries of `inspect --json`, without the lines that name the paths."""
        found = [json.loads(line) for line in self.out.splitlines()]
        return [each for each in found if each["kind"] != "path"]

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [each for each in self.entries if each["kind"] == kind]

    def json(self) -> Any:
        return json.loads(self.out)


class Looker:
    """Runs a command as `cli.main` does, without a process for it."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, name: str, *arguments: object) -> Ran:
        module = importlib.import_module(COMMANDS[name].module)
        parser = Parser(prog=name)
        module.add_arguments(parser)
        self._capsys.readouterr()
        status = module.run(parser.parse_args([*map(str, arguments)]))
        return Ran(status, self._capsys.readouterr().out)


def unpacked_kafka(name: str, into: Path) -> Path:
    """A folder that Kafka left: one of `kafka_folders`, or of a node whose logs were cleaned."""
    if name in kafka_folders.NAMES:
        return kafka_folders.unpack(name, into)
    with tarfile.open(CLEANED / f"{name}.tar.gz") as archive:
        archive.extractall(into, filter="data")
    return into / "data"


def state_of(folder: Path) -> dict[str, tuple[str, int, int]]:
    """The hash, the time of the last change and the size of each file and folder."""
    found = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        stat = path.stat()
        data = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (hashlib.sha256(data).hexdigest(), stat.st_mtime_ns, stat.st_size)
    return found


def copied(folder: Path, to: Path) -> Path:
    """A copy to be damaged."""
    shutil.copytree(folder, to)
    return to


def flip(path: Path, place: int, bit: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= bit
    path.write_bytes(data)


def write_at(path: Path, place: int, data: bytes) -> None:
    whole = bytearray(path.read_bytes())
    whole[place : place + len(data)] = data
    path.write_bytes(whole)


def add(path: Path, data: bytes) -> None:
    path.write_bytes(path.read_bytes() + data)


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
