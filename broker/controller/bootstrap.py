"""What a new cluster begins with: `bootstrap.checkpoint`, as Kafka's format step leaves it in the folder.

It is read where the metadata log says nothing yet: a folder that Kafka's `storage format` made begins with the levels
and credentials that it was asked for. Otherwise it is written before the log is, so that Kafka begins with our levels
on a folder that we didn't come to begin. Source: BootstrapDirectory, ActivationRecordsGenerator.
"""

from __future__ import annotations

from broker.controller.features import ELR_VERSION
from broker.controller.image import MetadataContradictionError
from broker.controller.quorum_state import Quorum
from broker.controller.record_serde import encode_metadata_record
from broker.controller.record_versions import LATEST_METADATA_VERSION, METADATA_VERSION, written_version
from broker.controller.registration import feature_levels, min_insync_replicas
from broker.controller.snapshot_file import BOOTSTRAP_FILE, SnapshotError, encode_snapshot, read_snapshot
from protocol.messages import metadata_records as records
from protocol.waiting import at_once
from protocol.wire.schema import Message
from storage.files import Files


def bootstrap_records(files: Files, directory: str, least_insync_replicas: int, now_ms: int) -> list[Message]:
    """The first records of the cluster; the file is written where it is missing.

    Raises MetadataContradictionError, CodecError, OSError for a file that can't be used.
    """
    path = f"{directory}/{BOOTSTRAP_FILE}"
    try:
        found = read_snapshot(files, path).records
    except FileNotFoundError:
        found = feature_levels()
        values = [encode_metadata_record(record, _version(record)) for record in found]
        data = at_once(
            encode_snapshot(values, Quorum(), epoch=0, last_contained_log_timestamp_ms=0, now_ms=now_ms)
        )
        files.replace_whole(path, data)
    except SnapshotError as error:
        raise MetadataContradictionError(str(error)) from error
    levels = {
        record.name: record.feature_level
        for record in found
        if isinstance(record, records.FeatureLevelRecord)
    }
    if METADATA_VERSION not in levels:
        raise MetadataContradictionError(f"{path} has no level of {METADATA_VERSION}")
    if levels.get(ELR_VERSION, 0) > 0:
        # with eligible leader replicas on, min.insync.replicas is a dynamic config of the cluster (KIP-966)
        found = [*found, min_insync_replicas(least_insync_replicas)]
    return found


def _version(record: Message) -> int:
    return written_version(type(record), LATEST_METADATA_VERSION)
