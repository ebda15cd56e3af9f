"""Damages to a data folder: what happens to files on a disk that fails, or in the hands of somebody who tidies up.

Each is one change to one file, chosen by a seed. `Damage.told` says which, for whoever looks for it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

KINDS = (
    ".log",
    ".index",
    ".timeindex",
    ".txnindex",
    ".snapshot",
    "leader-epoch-checkpoint",
    "partition.metadata",
    "meta.properties",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
    ".kafka_cleanshutdown",
    "quorum-state",
    "bootstrap.checkpoint",
    "metadata.log",
    "metadata.checkpoint",
    "folder",
)
"""Kinds of files. `metadata.log` is the metadata's own log, and `folder` is the whole folder of a partition."""


@dataclass(frozen=True)
class Damage:
    """One damage that was done."""

    kind: str
    action: str
    path: Path
    detail: str = ""

    @property
    def told(self) -> str:
        return f"{self.action} {self.path} {self.detail}".rstrip()


def kind_of(path: Path) -> str:
    """Return the kind of a file, or "" if the kind is unknown."""
    in_metadata = path.parent.name == "__cluster_metadata-0"
    if in_metadata and path.suffix == ".log":
        return "metadata.log"
    if path.suffix == ".checkpoint" and path.name != "bootstrap.checkpoint":
        return "metadata.checkpoint"
    return next((kind for kind in KINDS if path.name.endswith(kind)), "")


def files_of(folder: Path) -> dict[str, list[Path]]:
    """Return all files and folders of partitions, by kind."""
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and kind_of(path):
            found.setdefault(kind_of(path), []).append(path)
    found["folder"] = [path for path in sorted(folder.iterdir()) if path.is_dir()]
    return found


def damage(folder: Path, chance: Random) -> Damage:
    """Do one damage, to a kind of file that the folder has."""
    found = files_of(folder)
    kind = chance.choice([kind for kind in KINDS if found.get(kind)])
    path = chance.choice(found[kind])
    if kind == "folder":
        action = chance.choice([*FOLDER_ACTIONS])
        return Damage(kind, action, path, FOLDER_ACTIONS[action](path, chance))
    action = chance.choice([*ACTIONS])
    return Damage(kind, action, path, ACTIONS[action](path, chance))


# --- to a file ------------------------------------------------------------------------------------------------------


def _flip_bit(path: Path, chance: Random) -> str:
    data = bytearray(path.read_bytes())
    if not data:
        path.write_bytes(b"\1")
        return "of an empty file"
    place, bit = chance.randrange(len(data)), chance.randrange(8)
    data[place] ^= 1 << bit
    path.write_bytes(data)
    return f"{bit} at {place}"


def _flip_sign(path: Path, chance: Random) -> str:
    data = bytearray(path.read_bytes())
    if len(data) < 4:
        return _flip_bit(path, chance)
    place = chance.randrange(len(data) // 4) * 4
    data[place] ^= 0x80
    path.write_bytes(data)
    return f"at {place}"


def _overwrite(path: Path, chance: Random) -> str:
    data = bytearray(path.read_bytes())
    place = chance.randrange(len(data) + 1)
    size = min(chance.choice((1, 8, 512)), len(data) - place)
    data[place : place + size] = chance.choice((bytes(size), b"\xff" * size, chance.randbytes(size)))
    path.write_bytes(data)
    return f"{size} bytes at {place}"


def _truncate(path: Path, chance: Random) -> str:
    data = path.read_bytes()
    size = chance.randrange(len(data)) if data else 0
    path.write_bytes(data[:size])
    return f"to {size} of {len(data)}"


def _empty(path: Path, chance: Random) -> str:
    path.write_bytes(b"")
    return ""


def _extend(path: Path, chance: Random) -> str:
    size = chance.choice((1, 7, 8, 12, 4096))
    with path.open("ab") as file:
        file.write(bytes(size))
    return f"by {size} zeros"


def _append_garbage(path: Path, chance: Random) -> str:
    size = chance.choice((1, 8, 61, 500))
    with path.open("ab") as file:
        file.write(chance.randbytes(size))
    return f"of {size} bytes"


def _delete(path: Path, chance: Random) -> str:
    path.unlink()
    return ""


def _swap(path: Path, chance: Random) -> str:
    others = [each for each in files_of(path.parent).get(kind_of(path), []) if each != path]
    if not others:
        return _empty(path, chance)
    other = chance.choice(others)
    mine, theirs = path.read_bytes(), other.read_bytes()
    path.write_bytes(theirs)
    other.write_bytes(mine)
    return f"with {other.name}"


def _duplicate(path: Path, chance: Random) -> str:
    suffix = chance.choice((".cleaned", ".swap", ".deleted", ".bak", ".tmp"))
    path.with_name(path.name + suffix).write_bytes(path.read_bytes())
    return f"as {suffix}"


def _rename(path: Path, chance: Random) -> str:
    suffix = chance.choice((".swap", ".deleted", ".bak", ".cleaned"))
    path.rename(path.with_name(path.name + suffix))
    return f"to {suffix}"


def _make_directory(path: Path, chance: Random) -> str:
    path.unlink()
    path.mkdir()
    return ""


def _older_copy(path: Path, chance: Random) -> str:
    """Cut a file to its first half, like an earlier copy of a file that only grows."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    return f"of {len(data) // 2} bytes"


ACTIONS: dict[str, Callable[[Path, Random], str]] = {
    "flip bit": _flip_bit,
    "flip a sign": _flip_sign,
    "overwrite": _overwrite,
    "truncate": _truncate,
    "empty": _empty,
    "extend": _extend,
    "append garbage": _append_garbage,
    "delete": _delete,
    "swap": _swap,
    "duplicate": _duplicate,
    "rename": _rename,
    "make a directory of": _make_directory,
    "an older copy": _older_copy,
}

# --- to a folder ----------------------------------------------------------------------------------------------------


def _lose_folder(path: Path, chance: Random) -> str:
    shutil.rmtree(path)
    return ""


def _rename_folder(path: Path, chance: Random) -> str:
    name = chance.choice(("renamed-0", "nonsense", f"{path.name}.bak", f"{path.name}-stray", "lost+found"))
    path.rename(path.with_name(name))
    return f"to {name}"


def _copy_folder(path: Path, chance: Random) -> str:
    name = chance.choice(("copy-0", "copy-of-it", f"{path.name}0"))
    shutil.copytree(path, path.with_name(name))
    return f"as {name}"


def _file_for_folder(path: Path, chance: Random) -> str:
    shutil.rmtree(path)
    path.write_bytes(b"no folder")
    return ""


def _empty_folder(path: Path, chance: Random) -> str:
    shutil.rmtree(path)
    path.mkdir()
    return ""


FOLDER_ACTIONS: dict[str, Callable[[Path, Random], str]] = {
    "lose": _lose_folder,
    "rename": _rename_folder,
    "copy": _copy_folder,
    "make a file of": _file_for_folder,
    "empty": _empty_folder,
}
