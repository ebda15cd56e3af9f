"""Check a node's folders: are they sound, whose are they, and what would a start do? Nothing is changed.

barnabas doctor data                            one folder
barnabas doctor disk1 disk2                     all log.dirs of a node
barnabas doctor --config server.properties      the folders that the file names

It reads every batch, unlike a start, and compares what several files say about the same thing. A note is
nothing to worry about. With a warning or an error the exit status is 1; if a folder isn't Kafka's it is 2.
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from broker.process.printable import printable
from cli.errors import FAILED, CommandUsageError
from cli.options import add_json, properties_of
from cli.output import show_json, show_pairs
from cli.wording import number_of

if TYPE_CHECKING:
    from broker.disks.examination import Examination
    from storage.file_examination import Finding
    from storage.files import LockedError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the folders."""
    parser.add_argument("directories", nargs="*", metavar="DIR", help="the node's log.dirs")
    parser.add_argument(
        "--config", metavar="FILE", help="a server.properties file that names the folders, instead of DIR"
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """See `cli.commands.Command`."""
    from broker.disks.examination import CLEANUP_POLICY, look
    from cli.inspecting.place import FILES
    from storage.disk_files import locked_by
    from storage.file_examination import Severity

    said = properties_of(options.config) if options.config is not None else None
    directories, metadata_dir = _directories(options, said)
    holders = {path: locked_by(f"{path}/.lock") for path in directories}
    policy = None if said is None else said.get(CLEANUP_POLICY, "delete")
    looked = look(FILES, directories, metadata_dir, policy)
    summary = _summary(looked, {path: holder for path, holder in holders.items() if holder is not None})
    order = [Severity.ERROR, Severity.WARNING, Severity.NOTE]
    findings = sorted(looked.findings, key=lambda each: order.index(each.severity))
    if options.json:
        show_json({**summary, "findings": [_as_json(each) for each in findings]})
    else:
        summary["without_a_folder"] = _in_few_words(looked.without_folder)
        show_pairs({name.replace("_", " "): value for name, value in summary.items()})
        for each in findings:
            print(printable(f"{each.severity.value}: {each.path}: {each.what}; {each.what_to_do}"))
        print(_verdict(findings))
    return FAILED if any(each.severity is not Severity.NOTE for each in findings) else 0


def _directories(options: argparse.Namespace, said: dict[str, str] | None) -> tuple[list[str], str]:
    """Return the node's folders, and the one with the metadata log. Raises CommandUsageError."""
    from cli.inspecting.kinds import is_data_folder, is_partition

    if options.directories and options.config is not None:
        raise CommandUsageError("give either the folders or --config, which names them: not both")
    named, metadata_dir = ([], "") if said is None else _named_by(options.config, said)
    paths = [os.path.abspath(path) for path in options.directories or named]
    if metadata_dir:
        paths.append(os.path.abspath(metadata_dir))
    if not paths:
        raise CommandUsageError(
            "give the folder, as in `barnabas doctor data`, or --config server.properties"
        )
    paths = [*dict.fromkeys(paths)]
    for path in paths:
        if not os.path.isdir(path):
            raise CommandUsageError(f"{path} doesn't exist, or isn't a folder")
        if not is_data_folder(path):
            hint = ""
            if is_partition(path):
                hint = f": it is a partition's folder. Give {os.path.dirname(path)}, or run `barnabas inspect {path}`"
            raise CommandUsageError(f"{path} isn't a Kafka data folder{hint}")
    has_it = [path for path in paths if os.path.isdir(f"{path}/__cluster_metadata-0")]
    return paths, (has_it or paths)[0]


def _named_by(path: str, said: dict[str, str]) -> tuple[list[str], str]:
    named = said.get("log.dirs") or said.get("log.dir")
    if not named:
        raise CommandUsageError(f"--config {path} has no log.dirs")
    return [each.strip() for each in named.split(",") if each.strip()], said.get("metadata.log.dir", "")


def _summary(looked: Examination, holders: dict[str, LockedError]) -> dict[str, object]:
    """Return what people want to know about the folders even if nothing is wrong."""
    from broker.controller.metadata_versions import METADATA_VERSION

    features = {} if looked.metadata is None else dict(looked.metadata.features)
    level = features.get(METADATA_VERSION)
    seen = [each for of_directory in looked.partitions.values() for each in of_directory.values()]
    said = [of_it.meta_properties or {} for of_it in looked.directories.values()]
    summary: dict[str, object] = {
        "directories": [*looked.directories],
        "kind": _kind(looked),
        "node_id": _one([each.get("node.id") for each in said]),
        "cluster_id": _one([each.get("cluster.id") for each in said]),
        "directory_ids": [each.get("directory.id", "-") for each in said],
        "metadata_version": None if level is None else _level(level),
        "features": [
            f"{name}={value}" for name, value in sorted(features.items()) if name != METADATA_VERSION
        ],
        "partitions": len(seen),
        "without_a_folder": [f"{topic}-{number}" for topic, number in sorted(looked.without_folder)],
        "bytes": sum(each.size_bytes for each in seen),
        "open_transactions": sum(len(each.open_transactions) for each in seen),
        "clean_shutdown": all(of_it.clean for of_it in looked.directories.values()),
        "a_start": _recovery(looked),
    }
    if holders:
        summary["in_use"] = [
            f"{path} by process {holder.holder or 'unknown'} {holder.command}".strip()
            + ": the findings may be changing"
            for path, holder in holders.items()
        ]
    return summary


def _in_few_words(partitions: list[tuple[str, int]]) -> list[str]:
    """Join consecutive partitions: `t-0…48`."""
    runs: list[tuple[str, int, int]] = []
    for topic, number in sorted(partitions):
        if runs and runs[-1][0] == topic and runs[-1][2] == number - 1:
            runs[-1] = (topic, runs[-1][1], number)
        else:
            runs.append((topic, number, number))
    return [f"{topic}-{first}" + (f"…{last}" if last > first else "") for topic, first, last in runs]


def _level(level: int) -> str:
    from broker.controller.metadata_versions import release_of

    try:
        return f"{release_of(level)} ({level})"
    except ValueError:
        return f"{level}, from a Kafka that this version doesn't know"


def _kind(looked: Examination) -> str:
    """Return what kind of folder it is, by its contents: nothing in a folder says whether Kafka or barnabas made it."""
    if looked.metadata is None:
        return "data of a broker with unreadable metadata"
    node_ids = {of_it.node_id for of_it in looked.directories.values()}
    roles = [
        role
        for role, known in (("broker", looked.metadata.brokers), ("controller", looked.metadata.controllers))
        if node_ids & known.keys()
    ]
    if not looked.metadata.features:
        return "a formatted folder in which no node has run"
    return f"data of a {' and '.join(roles)}" if roles else "data of a node that isn't registered"


def _recovery(looked: Examination) -> str:
    """Return what a start does before it serves requests."""
    unclean = [path for path, of_it in looked.directories.items() if not of_it.clean]
    if not unclean:
        return "checks nothing: the last run stopped cleanly"
    segments = size = partitions = 0
    for path in unclean:
        points = looked.directories[path].recovery_points
        for key, seen in looked.partitions[path].items():
            again = [
                walked
                for walked in seen.segments.values()
                if walked.end_offset > points.get(key, 0) or walked.is_open
            ]
            partitions += bool(again)
            segments += len(again)
            size += sum(walked.end for walked in again)
    return (
        f"reads everything after the recovery points again: {segments:,} segments, {size:,} bytes, "
        f"of {partitions:,} partitions; it cuts off what is damaged, and rebuilds the indexes"
    )


def _one(values: list[str | None]) -> object:
    found = [*dict.fromkeys(values)]
    return found[0] if len(found) == 1 else found


def _as_json(finding: Finding) -> dict[str, str]:
    fields = finding._asdict()
    fields["severity"] = finding.severity.value
    return fields


def _verdict(findings: list[Finding]) -> str:
    from storage.file_examination import Severity

    counts = {severity: sum(each.severity is severity for each in findings) for severity in Severity}
    bad = counts[Severity.ERROR] + counts[Severity.WARNING]
    if not bad:
        return "sound" + (f" ({number_of(counts[Severity.NOTE], 'note')})" if counts[Severity.NOTE] else "")
    return ", ".join(number_of(counts[each], each.value) for each in Severity if counts[each])
