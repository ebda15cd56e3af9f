"""A node of a test that begins anew within its process: with an empty folder, or with a copy of what it held at some
moment. Only its interpreter and its ports stay: all else is a stop and a start, in milliseconds.

A copy is what a crash at that moment would leave: whoever starts on it recovers, and open transactions and groups go
on. It is made in one turn of the loop, so that nothing is written meanwhile.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from storage.checkpoints import CLEAN_SHUTDOWN_FILE
from storage.directory.log_directory import LOCK_FILE

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig

_TRIES = 5
_NOT_COPIED = frozenset((LOCK_FILE, CLEAN_SHUTDOWN_FILE))


class RenewalError(Exception):
    """It can't be, or can't be copied; why, in one line."""


class Renewal(NamedTuple):
    """`copy`: the folder to begin with; None for an empty one. `told` is called with where the node listens then."""

    copy: str | None
    told: Callable[[Any], None]


def check_can_begin_anew(config: BrokerConfig, copy: str | None) -> None:
    """Raises RenewalError."""
    if config.joins or config.is_only_controller:
        raise RenewalError("a node of a cluster can't begin anew: the others would know it from before")
    _only_one_of(config.log_dirs)
    if copy is not None and not os.path.isdir(copy):
        raise RenewalError(f"there is no folder {copy}")


def begin_anew(config: BrokerConfig, cluster_id: str, copy: str | None) -> None:
    """Behind the end of the node: its folder is as it is to be, no setting is altered, and its cluster is still called
    so. Raises OSError."""
    (folder,) = config.log_dirs
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)
    if copy is not None:
        shutil.copytree(copy, folder, dirs_exist_ok=True)
    config.cluster_id = cluster_id
    config.set_dynamic(broker={}, cluster={})


def copied(folders: Sequence[str], to: str) -> int:
    """What stands in the node's only folder; how many bytes that was. Raises RenewalError.

    Threads beside the loop may be cleaning a log, and files come and go under it: it is begun again then."""
    folder = _only_one_of(folders)
    for _ in range(_TRIES):
        before = _names(folder)
        shutil.rmtree(to, ignore_errors=True)
        try:
            shutil.copytree(folder, to, ignore=_left_out)
        except (shutil.Error, FileNotFoundError):
            continue
        if before == _names(folder):
            return sum(
                os.path.getsize(os.path.join(root, name)) for root, _, names in os.walk(to) for name in names
            )
    raise RenewalError(f"{folder} changes while it is copied")


def _only_one_of(folders: Sequence[str]) -> str:
    """Raises RenewalError."""
    if len(folders) != 1:
        raise RenewalError("it has several log directories")
    return folders[0]


def _names(folder: str) -> list[str]:
    return sorted(os.path.join(root, name) for root, _, names in os.walk(folder) for name in names)


def _left_out(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if name in _NOT_COPIED}
