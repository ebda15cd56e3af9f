"""Kafka's small text files: checkpoints, leader epochs, partition and node metadata, the clean shutdown mark.

The encoders return bytes. Callers write them with `files.replace_whole`. Sources: org.apache.kafka.server.common
CheckpointFile, org.apache.kafka.storage.internals.checkpoint, org.apache.kafka.metadata.properties.
"""

import json
from collections.abc import Iterable, Mapping

from protocol.topic_partition import TopicPartition
from storage.files import Files

RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_FILE = "replication-offset-checkpoint"
LOG_START_FILE = "log-start-offset-checkpoint"
CLEANER_OFFSET_FILE = "cleaner-offset-checkpoint"
OF_EVERY_LOG = (RECOVERY_POINT_FILE, HIGH_WATERMARK_FILE)
"""A clean stop leaves an entry for every partition in these files; in the others only for some."""
LEADER_EPOCH_FILE = "leader-epoch-checkpoint"
PARTITION_METADATA_FILE = "partition.metadata"
META_PROPERTIES_FILE = "meta.properties"
META_PROPERTIES = ("version", "node.id", "cluster.id", "directory.id")
"""The names in it. Each has a value."""
META_PROPERTIES_TODO = (
    "restore it from a copy, or write version=1, node.id, cluster.id and directory.id into it, one NAME=VALUE per "
    "line; the directory's id is the one in the last RegisterBrokerRecord of __cluster_metadata-0. If you remove the "
    "file, the folder's partitions begin empty"
)
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"


_VERSION = "0"


class CheckpointError(Exception):
    """A checkpoint file with wrong content."""


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Encode `0`, the count, then `topic partition offset` per line."""
    return _encode(f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())


def read_offsets(files: Files, path: str) -> dict[TopicPartition, int]:
    """Read the offsets; none if the file is missing or empty. Raises `CheckpointError`."""
    offsets = {}
    for line in _read_lines(files, path):
        words = line.split(" ")
        if len(words) != 3:
            raise CheckpointError(f"{path}: {line!r}")
        offsets[words[0], _number(words[1], path)] = _number(words[2], path)
    return offsets


def encode_leader_epochs(entries: Iterable[tuple[int, int]]) -> bytes:
    """Encode `0`, the count, then `epoch startOffset` per line."""
    return _encode(f"{epoch} {start_offset}" for epoch, start_offset in entries)


def read_leader_epochs(files: Files, path: str) -> list[tuple[int, int]]:
    """Read the entries; none if the file is missing or empty. Raises `CheckpointError`."""
    entries = []
    for line in _read_lines(files, path):
        words = line.split(" ")
        if len(words) != 2:
            raise CheckpointError(f"{path}: {line!r}")
        entries.append((_number(words[0], path), _number(words[1], path)))
    return entries


def _encode(lines: Iterable[str]) -> bytes:
    entries = list(lines)
    return "".join(f"{line}\n" for line in (_VERSION, str(len(entries)), *entries)).encode()


def _read_lines(files: Files, path: str) -> list[str]:
    try:
        text = files.read_whole(path).decode()
    except FileNotFoundError:
        return []
    except UnicodeDecodeError as failure:
        raise CheckpointError(f"{path}: {failure}") from failure
    if text and text[-1] != "\n":
        # a power loss came before it was synced: the last number may lack digits
        raise CheckpointError(f"{path} ends within a line")
    lines = text.splitlines()
    if not lines:
        return []
    if lines[0] != _VERSION:
        raise CheckpointError(f"{path}: version {lines[0]!r}")
    if len(lines) == 1:
        return []
    if _number(lines[1], path) != len(lines) - 2:
        raise CheckpointError(f"{path}: {lines[1]} entries promised, {len(lines) - 2} there")
    return lines[2:]


def _number(text: str, path: str) -> int:
    try:
        return int(text)
    except ValueError as failure:
        raise CheckpointError(f"{path}: {text!r} is no number") from failure


_PARTITION_METADATA_BEGIN = b"version: 0\ntopic_id: "
_PARTITION_METADATA_BYTES = len(_PARTITION_METADATA_BEGIN) + 22


class TornCheckpointError(CheckpointError):
    """The file ends too early: a power loss came before it was synced."""


def partition_metadata_todo(topic_id_text: str) -> str:
    """What to do with a partition.metadata that makes no sense."""
    return f"write 'version: 0' and 'topic_id: {topic_id_text}' into it, a line each"


def encode_partition_metadata(topic_id_text: str) -> bytes:
    """Encode 43 bytes, without a newline at the end."""
    return f"version: 0\ntopic_id: {topic_id_text}".encode()


def read_partition_metadata(files: Files, path: str) -> str | None:
    """Read the topic id in text form; None if the file is missing or has none.

    Raises `CheckpointError`; `TornCheckpointError` if only its end is missing.
    """
    try:
        data = files.read_whole(path)
    except FileNotFoundError:
        return None
    if not data.strip(b"\0"):
        return None
    if len(data) < _PARTITION_METADATA_BYTES and data.startswith(_PARTITION_METADATA_BEGIN[: len(data)]):
        raise TornCheckpointError(f"{path}: {data!r}")
    fields = {}
    for line in data.decode(errors="replace").splitlines():
        name, separator, value = line.partition(":")
        if not separator:
            raise CheckpointError(f"{path}: {line!r}")
        fields[name.strip()] = value.strip()
    if fields.get("version") != "0" or len(fields.get("topic_id", "")) != 22:
        raise CheckpointError(f"{path}: {fields}")
    return fields["topic_id"]


def encode_properties(properties: Mapping[str, str], comment: str = "") -> bytes:
    """Encode a Java properties file of plain names and values, such as meta.properties."""
    lines = [f"#{comment}", *(f"{name}={value}" for name, value in properties.items())]
    return "".join(f"{line}\n" for line in lines).encode()


def read_meta_properties(files: Files, path: str) -> dict[str, str] | None:
    """Read the names and values of a meta.properties; None if the file is missing."""
    try:
        text = files.read_whole(path).decode("latin-1")
    except FileNotFoundError:
        return None
    properties = {}
    for line in text.splitlines():
        line = line.strip()
        if line and line[0] not in "#!":
            name, _separator, value = line.partition("=")
            properties[name.strip()] = value.strip().replace("\\:", ":").replace("\\=", "=")
    return properties


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def read_clean_shutdown(files: Files, path: str) -> int | None:
    """Read the broker epoch of the run that stopped cleanly: -1 if the mark has none, None without a mark."""
    try:
        content = json.loads(files.read_whole(path))
        return int(content["brokerEpoch"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        return -1


def says_clean_shutdown(data: bytes) -> bool:
    """True if the mark has the right form. A controller's has -1. (Before Kafka 3.7 it was empty.)"""
    try:
        return not data or isinstance(json.loads(data)["brokerEpoch"], int)
    except (ValueError, KeyError, TypeError):
        return False
