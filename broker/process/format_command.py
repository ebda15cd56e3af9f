"""`barnabas format`: formats log directories for a node and a cluster, as `kafka-storage format` does.

It writes Kafka's own files: `meta.properties` in each directory, and the first records of the new cluster, with its
voters if they are given, where a Kafka of its release looks for them. Source: `StorageTool.runFormatCommand`,
`Formatter`.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from ipaddress import IPv6Address
from typing import NamedTuple, NoReturn

from broker.config.assembly import assemble
from broker.config.broker_config import VOTERS, BrokerConfig, controls
from broker.config.definitions import UsageError
from broker.config.given_settings import Setting, read_properties
from broker.controller.metadata_versions import (
    BOOTSTRAP_IN_LOG_SINCE,
    KRAFT_VERSION,
    KRAFT_VERSION_RANGE,
    LATEST_METADATA_VERSION,
    METADATA_VERSION,
    SCRAM_NEEDS,
    feature_levels,
    initial_levels,
    metadata_version_of,
    release_of,
)
from broker.controller.quorum_state import KRAFT_VERSION_OF_VOTERS, Quorum
from broker.controller.scram_decisions import HASHES, MAX_ITERATIONS, derived_keys
from broker.controller.snapshots import write_bootstrap
from broker.disks.opening import VERSION
from broker.environment.scheduler import Chance
from broker.environment.threads import only_in_this_thread
from broker.security.sasl import MIN_ITERATIONS
from protocol.messages.metadata_records import UserScramCredentialRecord
from protocol.messages.raft import Endpoint, KRaftVersionFeature, Voter, VotersRecord
from protocol.wire.primitives import uuid_from_text, uuid_to_text
from protocol.wire.schema import Message
from storage.checkpoints import META_PROPERTIES_FILE, encode_properties, read_meta_properties
from storage.directory.log_directory import METADATA_TOPIC
from storage.disk_files import DiskFiles
from storage.files import Files

# --- The first voters: `0@host:9093:DIRECTORY_ID,…` (KIP-853; `DynamicVoters`) ------------------------------


def voters_of(text: str, listener_name: str) -> VotersRecord:
    """Parse voters, each at the controller's listener of this name. They are in the order of their ids. Raises
    ValueError."""
    voters: dict[int, Voter] = {}
    for entry in text.strip().split(","):
        if entry:
            voter = _voter(entry.strip(), listener_name.upper())
            if voter.voter_id in voters:
                raise ValueError(f"Node id {voter.voter_id} was specified more than once.")
            voters[voter.voter_id] = voter
    if not voters:
        raise ValueError("No voters given.")
    return VotersRecord(version=0, voters=[voters[voter_id] for voter_id in sorted(voters)])


def _voter(entry: str, listener_name: str) -> Voter:
    node_id, at, rest = entry.partition("@")
    if not at:
        raise ValueError("No @ found in dynamic voter string.")
    if rest.startswith("["):
        host, bracket, rest = rest[1:].partition("]")
        if not bracket:
            raise ValueError("Hostname began with left bracket, but no right bracket was found.")
    else:
        host, colon, rest = rest.partition(":")
        rest = colon + rest
    if not host:
        raise ValueError("No hostname found after node id.")
    if not rest.startswith(":"):
        raise ValueError("Port section must start with a colon.")
    port, colon, directory_id = rest[1:].partition(":")
    if not colon:
        raise ValueError("No colon following port could be found.")
    if not (node_id.isascii() and node_id.isdigit() and int(node_id) < 1 << 31):
        raise ValueError("Failed to parse node id in dynamic voter string.")
    if not (port.isascii() and port.isdigit() and int(port) <= 65_535):
        raise ValueError(f"Invalid port {port} in dynamic voter string.")
    try:
        directory = uuid_from_text(directory_id)
    except ValueError:
        raise ValueError("Failed to parse directory ID in dynamic voter string.") from None
    if ":" in host:
        host = ":".join(
            f"{int(group, 16):x}" for group in IPv6Address(host).exploded.split(":")
        )  # as Java does
    low, high = KRAFT_VERSION_RANGE
    return Voter(
        voter_id=int(node_id),
        voter_directory_id=directory,
        endpoints=[Endpoint(name=listener_name, host=host, port=int(port))],
        kraft_version_feature=KRaftVersionFeature(min_supported_version=low, max_supported_version=high),
    )


# --- Credentials: `SCRAM-SHA-256=[name=alice,password=secret]` (`ScramParser`) ------------------------------

_MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
_DEFAULT_ITERATIONS = 4096


def credential(argument: str, new_salt: Callable[[], bytes]) -> UserScramCredentialRecord:
    """Parse a credential. Raises ValueError, whose message never has a password."""
    mechanism, equals, given = argument.strip().partition("=")
    if not equals:
        raise ValueError(f"Failed to find equals sign in SCRAM argument '{mechanism}'")
    if mechanism not in _MECHANISMS:
        raise ValueError(f"The add-scram mechanism {mechanism} is not supported.")
    if not given.startswith("["):
        raise ValueError("Expected configuration string to start with [")
    if not given.endswith("]"):
        raise ValueError("Expected configuration string to end with ]")
    parts = dict(_part(part) for part in given[1:-1].split(","))
    name = parts.pop("name", None)
    if name is None:
        raise ValueError("You must supply 'name' to add-scram")
    said_salt = parts.pop("salt", None)
    salt = new_salt() if said_salt is None else _decoded("salt", said_salt)
    iterations = _iterations(parts.pop("iterations", str(_DEFAULT_ITERATIONS)), mechanism)
    password, salted = parts.pop("password", None), parts.pop("saltedpassword", None)
    if password is None and salted is None:
        raise ValueError("You must supply one of 'password' or 'saltedpassword' to add-scram")
    if password is None and said_salt is None:
        raise ValueError("You must supply 'salt' with 'saltedpassword' to add-scram")
    if parts:
        raise ValueError(f"Unknown SCRAM configurations: {', '.join(sorted(parts))}")
    number = _MECHANISMS[mechanism]
    if password is None:
        assert salted is not None
        salted_password = _decoded("saltedPassword", salted)
    else:
        salted_password = hashlib.pbkdf2_hmac(HASHES[number], password.encode(), salt, iterations)
    stored_key, server_key = derived_keys(number, salted_password)
    return UserScramCredentialRecord(
        name=name,
        mechanism=number,
        salt=salt,
        stored_key=stored_key,
        server_key=server_key,
        iterations=iterations,
    )


def _part(part: str) -> tuple[str, str]:
    name, equals, value = part.partition("=")
    if not equals:
        raise ValueError("No equals sign found in SCRAM component")
    if len(value) >= 2 and value[0] == value[-1] == '"':
        value = value[1:-1]
    return name, value


def _decoded(name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError(f"Failed to decode given {name}") from None


def _iterations(text: str, mechanism: str) -> int:
    try:
        iterations = int(text)
    except ValueError:
        raise ValueError(f"Failed to parse iterations count: {text}") from None
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        bound = f">= {MIN_ITERATIONS}" if iterations < MIN_ITERATIONS else f"<= {MAX_ITERATIONS}"
        raise ValueError(f"The 'iterations' value must be {bound} for add-scram using {mechanism}")
    return iterations


# --- The command --------------------------------------------------------------------------------------------

SALT_BYTES = 16


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (--help lists what there is)")


class Format(NamedTuple):
    """What to write. `voters` is None if the configuration has the voters, or if they come later."""

    node_id: int
    cluster_id: str
    directories: Sequence[str]
    metadata_directory: str
    is_controller: bool
    metadata_version: int
    records: Sequence[Message]
    voters: VotersRecord | None

    @property
    def quorum(self) -> Quorum:
        return Quorum() if self.voters is None else Quorum(KRAFT_VERSION_OF_VOTERS, self.voters)


def format_command(arguments: Sequence[str]) -> int:
    """Run the command. Returns the exit status 0. Raises UsageError; nothing is written then, unless a disk failed."""
    options = _parser().parse_args(arguments)
    chance = Chance(os.urandom)
    static = {
        found.name: Setting(found.value, f"{options.config}:{found.line}")
        for found in read_properties(options.config)
    }
    config = assemble([static], host_name=lambda: "localhost")
    if "process.roles" not in static:
        raise UsageError(
            f"{options.config}: process.roles is missing: formatting is only supported for clusters in KRaft mode"
        )
    try:
        wanted = _wanted(options, config, static, chance)
    except ValueError as error:
        raise UsageError(str(error)) from None
    files = DiskFiles(only_in_this_thread())
    try:
        _write(wanted, files, chance, ignore_formatted=options.ignore_formatted)
    except OSError as error:
        raise UsageError(
            f"{error.filename or 'the disk'}: {error.strerror or error}", exit_status=1
        ) from error
    return 0


def _parser() -> _Parser:
    parser = _Parser(
        prog="barnabas format",
        description="Format the log directories of a node, as kafka-storage format does.",
        allow_abbrev=False,
    )
    parser.add_argument("--config", "-c", metavar="FILE", required=True, help="a server.properties")
    parser.add_argument("--cluster-id", "-t", metavar="ID", required=True, help="the cluster's id")
    parser.add_argument(
        "--add-scram",
        "-S",
        metavar="CREDENTIAL",
        action="append",
        default=[],
        help="such as 'SCRAM-SHA-256=[name=alice,password=alice-secret]'; may be given several times",
    )
    parser.add_argument(
        "--ignore-formatted",
        "-g",
        action="store_true",
        help="pass over directories that are formatted already",
    )
    parser.add_argument(
        "--release-version",
        "-r",
        metavar="RELEASE",
        help=f"whose features to begin with (default: {release_of(LATEST_METADATA_VERSION)})",
    )
    parser.add_argument(
        "--feature",
        "-f",
        metavar="NAME=LEVEL",
        action="append",
        default=[],
        help="the level of one feature; may be given several times",
    )
    quorum = parser.add_mutually_exclusive_group()
    quorum.add_argument("--standalone", "-s", action="store_true", help="this controller is the only voter")
    quorum.add_argument(
        "--no-initial-controllers", "-N", action="store_true", help="the voters are known elsewhere"
    )
    quorum.add_argument(
        "--initial-controllers", "-I", metavar="VOTERS", help="the voters, as id@host:port:directory-id,…"
    )
    return parser


def _wanted(
    options: argparse.Namespace, config: BrokerConfig, static: Mapping[str, Setting], chance: Chance
) -> Format:
    """What the options say to write. Raises ValueError."""
    is_dynamic = not config.get_list(VOTERS)
    voters = _voters(options, config, static, chance, is_dynamic=is_dynamic)
    wished = dict(map(_feature, options.feature))
    if METADATA_VERSION in wished and options.release_version is not None:
        raise ValueError(
            f"Use --release-version instead of --feature {METADATA_VERSION}=X to avoid ambiguity."
        )
    kraft_version = wished.pop(KRAFT_VERSION, None)
    _check_kraft_version(kraft_version, is_dynamic=is_dynamic)
    metadata_version = wished.pop(METADATA_VERSION, LATEST_METADATA_VERSION)
    if options.release_version is not None:
        metadata_version = metadata_version_of(options.release_version)
    levels = initial_levels(metadata_version, wished)
    records = feature_levels(levels)
    if options.add_scram and metadata_version < SCRAM_NEEDS:
        raise ValueError(f"SCRAM is only supported in {METADATA_VERSION} {release_of(SCRAM_NEEDS)} or later.")
    records += [credential(each, lambda: chance.token_bytes(SALT_BYTES)) for each in options.add_scram]
    metadata_directory = config.get_string("metadata.log.dir") or config.log_dirs[0]
    return Format(
        config.node_id,
        options.cluster_id,
        sorted({*config.log_dirs, metadata_directory}),
        metadata_directory,
        controls(static),
        metadata_version,
        records,
        voters,
    )


def _voters(
    options: argparse.Namespace,
    config: BrokerConfig,
    static: Mapping[str, Setting],
    chance: Chance,
    *,
    is_dynamic: bool,
) -> VotersRecord | None:
    if not is_dynamic and (options.standalone or options.initial_controllers is not None):
        raise ValueError(
            f"You cannot specify {VOTERS} and format the node with --initial-controllers or --standalone. If you want "
            f"to use dynamic quorum, please remove {VOTERS} and specify controller.quorum.bootstrap.servers instead."
        )
    is_controller = controls(static)
    listener_name = config.get_list("controller.listener.names")[0]
    if options.initial_controllers is not None:
        return voters_of(options.initial_controllers, listener_name)
    if options.standalone:
        if not is_controller:
            raise ValueError("You can only use --standalone on a controller.")
        if not config.controller_listeners:
            raise ValueError("No controller listeners found.")
        listener = config.controller_listeners[0]
        assert listener.advertised is not None
        host, port = listener.advertised
        host = f"[{host}]" if ":" in host else host
        return voters_of(f"{config.node_id}@{host}:{port}:{uuid_to_text(chance.uuid())}", listener.name)
    if is_controller and is_dynamic and not options.no_initial_controllers:
        raise ValueError(
            f"Because {VOTERS} is not set on this controller, you must specify one of the following: --standalone, "
            "--initial-controllers, or --no-initial-controllers."
        )
    return None


def _check_kraft_version(level: int | None, *, is_dynamic: bool) -> None:
    if level is None:
        return
    if level not in (0, KRAFT_VERSION_OF_VOTERS):
        raise ValueError(f"No feature:{KRAFT_VERSION} with feature level {level}")
    if level == 0 and is_dynamic:
        raise ValueError(
            f"Cannot set {KRAFT_VERSION} to 0 if {VOTERS} is empty and one of the flags --standalone, "
            "--initial-controllers, or --no-initial-controllers is used."
        )
    if level and not is_dynamic:
        raise ValueError(
            f"Cannot set {KRAFT_VERSION} to {level} unless {VOTERS} is empty and one of the flags --standalone, "
            "--initial-controllers, or --no-initial-controllers is used."
        )


def _feature(argument: str) -> tuple[str, int]:
    name, equals, level = (part.strip() for part in argument.partition("="))
    if not equals:
        raise ValueError(f"Can't parse feature=level string {argument}: equals sign not found.")
    if not (level.isascii() and level.isdigit() and len(level) <= 5):
        raise ValueError(f"Can't parse feature=level string {argument}: unable to parse {level} as a short.")
    return name, int(level)


# --- files ------------------------------------------------------------------------------------------------------


def _write(wanted: Format, files: Files, chance: Chance, *, ignore_formatted: bool) -> None:
    """Write the files. `meta.properties` comes last: without it a directory isn't formatted. Raises UsageError,
    OSError."""
    empty = [directory for directory in wanted.directories if not _is_formatted(wanted, files, directory)]
    formatted = [directory for directory in wanted.directories if directory not in empty]
    if formatted and not ignore_formatted:
        raise UsageError(
            f"Log directory {formatted[0]} is already formatted. "
            "Use --ignore-formatted to ignore this directory and format the others.",
            exit_status=1,
        )
    if not empty:
        print("All of the log directories are already formatted.")
    now_ms = time.time_ns() // 1_000_000
    for directory in empty:
        holds_metadata = directory == wanted.metadata_directory
        kind = "data" if not holds_metadata else "metadata"
        directory_id = uuid_to_text(chance.uuid())
        if holds_metadata and wanted.voters is not None:
            kind = "dynamic metadata"
            own = [each for each in wanted.voters.voters if each.voter_id == wanted.node_id]
            if own:
                kind, directory_id = "dynamic metadata voter", uuid_to_text(own[0].voter_directory_id)
        print(
            f"Formatting {kind} directory {directory} with {METADATA_VERSION} {release_of(wanted.metadata_version)}."
        )
        files.make_directories(directory)
        log = f"{directory}/{METADATA_TOPIC}-0"
        if holds_metadata and wanted.is_controller:
            write_bootstrap(files, log, wanted.records, wanted.metadata_version, wanted.quorum, now_ms)
        elif wanted.metadata_version < BOOTSTRAP_IN_LOG_SINCE:  # Kafka 4.3 writes it to every directory
            write_bootstrap(files, log, wanted.records, wanted.metadata_version, Quorum(), now_ms)
        properties = {
            "node.id": str(wanted.node_id),
            "directory.id": directory_id,
            "version": VERSION,
            "cluster.id": wanted.cluster_id,
        }
        files.replace_whole(f"{directory}/{META_PROPERTIES_FILE}", encode_properties(properties))


def _is_formatted(wanted: Format, files: Files, directory: str) -> bool:
    """True if the directory is formatted. Raises UsageError if it belongs to another node or cluster."""
    path = f"{directory}/{META_PROPERTIES_FILE}"
    found = read_meta_properties(files, path)
    if found is None:
        return False
    for name, ours in (("cluster.id", wanted.cluster_id), ("node.id", str(wanted.node_id))):
        if found.get(name, ours) != ours:
            raise UsageError(
                f"Invalid {name} in: {path}. Expected {ours}, but read {found[name]}", exit_status=1
            )
    return True
