"""`barnabas format`: what it refuses, and what it leaves alone. What it writes is held beside Kafka's in
`tests/interop/test_format.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.config.definitions import UsageError
from broker.controller.metadata_versions import initial_levels, metadata_version_of, release_of
from broker.process.format_command import credential, format_command

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
VOTER = "1@h:9093:JEXY6aqzQY-32P5TStzaFg"


def config(folder: Path, **settings: str) -> Path:
    all_settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        "log.dirs": f"{folder}/data",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    file = folder / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in all_settings.items() if value))
    return file


def refusal(tmp_path: Path, *arguments: str, **settings: str) -> str:
    """Return the refusal. It has one line, and nothing was written."""
    with pytest.raises(UsageError) as raised:
        format_command(["-t", CLUSTER_ID, "-c", str(config(tmp_path, **settings)), *arguments])
    assert not (tmp_path / "data").exists()
    assert "\n" not in str(raised.value)
    return str(raised.value)


STATIC = {"controller_quorum_voters": "1@localhost:9093"}


def test_a_controller_needs_to_know_the_voters(tmp_path: Path) -> None:
    assert "you must specify one of the following: --standalone" in refusal(tmp_path)


@pytest.mark.parametrize("arguments", [["--standalone"], ["--initial-controllers", VOTER]])
def test_voters_are_recorded_in_only_one_place(tmp_path: Path, arguments: list[str]) -> None:
    told = refusal(tmp_path, *arguments, **STATIC)
    assert told.startswith("You cannot specify controller.quorum.voters and format the node with")


def test_only_a_controller_stands_alone(tmp_path: Path) -> None:
    settings = {"process_roles": "broker", "listeners": "PLAINTEXT://localhost:9092"}
    more = {"controller_quorum_bootstrap_servers": "localhost:9093"}
    told = refusal(tmp_path, "--standalone", **settings, **more)
    assert told == "You can only use --standalone on a controller."


def test_a_file_without_roles_belongs_to_no_cluster(tmp_path: Path) -> None:
    told = refusal(tmp_path, "--standalone", process_roles="")
    assert "process.roles is missing" in told


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["-r", "2.8"], "Unknown metadata.version '2.8'. Supported metadata.version are: 3.3-IV3, 3.4-IV0"),
        (["-r", "4.5"], "Unknown metadata.version '4.5'"),
        (["-r", "4.3", "-f", "metadata.version=30"], "Use --release-version instead of --feature"),
        (["-f", "metadata.version=6"], "No MetadataVersion with feature level 6"),
        (["-f", "metadata.version=34"], "No MetadataVersion with feature level 34"),
        (["-f", "group.version=2"], "No feature:group.version with feature level 2"),
        (["-f", "group.version"], "Can't parse feature=level string group.version: equals sign not found."),
        (["-f", "group.version=x"], "unable to parse x as a short."),
        (["-f", "colour.version=1"], "Unsupported feature: colour.version. Supported features are: eligible"),
        (["-f", "kraft.version=1"], "Cannot set kraft.version to 1 unless controller.quorum.voters is empty"),
        (["-f", "kraft.version=2"], "No feature:kraft.version with feature level 2"),
        (
            ["-r", "3.9", "-f", "eligible.leader.replicas.version=1"],
            "eligible.leader.replicas.version could not be set to 1 because it depends on metadata.version level 23",
        ),
        (
            ["-r", "3.4", "-S", "SCRAM-SHA-256=[name=a,password=b]"],
            "SCRAM is only supported in metadata.version 3.5-IV2 or later.",
        ),
        (["-S", "SCRAM-SHA-256=[name=a]"], "You must supply one of 'password' or 'saltedpassword'"),
    ],
)
def test_unknown_levels_are_reported(tmp_path: Path, arguments: list[str], error: str) -> None:
    assert error in refusal(tmp_path, *arguments, **STATIC)


def test_a_level_of_the_quorum_that_goes_without_its_voters_is_refused(tmp_path: Path) -> None:
    told = refusal(tmp_path, "--standalone", "-f", "kraft.version=0")
    assert told.startswith("Cannot set kraft.version to 0 if controller.quorum.voters is empty")


@pytest.mark.parametrize(
    ("voters", "error"),
    [
        (",", "No voters given."),
        ("1", "No @ found"),
        ("1@", "No hostname found"),
        ("1@h", "Port section must start with a colon."),
        ("1@h:9093", "No colon following port"),
        ("1@[::1", "no right bracket"),
        ("x@h:9093:JEXY6aqzQY-32P5TStzaFg", "Failed to parse node id"),
        ("1@h:90930:JEXY6aqzQY-32P5TStzaFg", "Invalid port 90930"),
        ("1@h:9093:J", "Failed to parse directory ID"),
        (f"{VOTER},{VOTER}", "Node id 1 was specified more than once."),
    ],
)
def test_nonsense_voters_are_reported(tmp_path: Path, voters: str, error: str) -> None:
    assert error in refusal(tmp_path, "--initial-controllers", voters)


@pytest.mark.parametrize(
    "arguments",
    [["-t", "x"], ["-c", "x"], ["-t", "x", "-c", "x", "--standalone", "--no-initial-controllers"]],
)
def test_missing_or_contradictory_options_are_wrong_use(arguments: list[str]) -> None:
    with pytest.raises(UsageError) as raised:
        format_command(arguments)
    assert raised.value.exit_status == 2


def test_a_formatted_folder_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(config(tmp_path, log_dirs=f"{tmp_path}/b,{tmp_path}/a", **STATIC))
    assert format_command(["-t", CLUSTER_ID, "-c", file]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"Formatting data directory {tmp_path}/a with metadata.version 4.4-IV2.",
        f"Formatting metadata directory {tmp_path}/b with metadata.version 4.4-IV2.",
    ]
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(UsageError, match=r"/a is already formatted\. Use --ignore-formatted"):
        format_command(["-t", CLUSTER_ID, "-c", file])
    assert format_command(["-t", CLUSTER_ID, "-c", file, "--ignore-formatted"]) == 0
    assert capsys.readouterr().out == "All of the log directories are already formatted.\n"
    with pytest.raises(UsageError, match=f"Invalid cluster.id in: .*Expected other, but read {CLUSTER_ID}"):
        format_command(["-t", "other", "-c", file, "--ignore-formatted"])
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    (tmp_path / "a" / "meta.properties").unlink()
    assert format_command(["-t", CLUSTER_ID, "-c", file, "--ignore-formatted"]) == 0
    assert capsys.readouterr().out.startswith(f"Formatting data directory {tmp_path}/a with")


def test_a_failing_disk_is_reported(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    with pytest.raises(UsageError, match="data"):
        format_command(["-t", CLUSTER_ID, "-c", str(config(tmp_path, **STATIC))])


# --- releases and credentials -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("release", "level"),
    [
        ("3.3-IV3", 7),
        ("3.5", 11),
        ("3.7.2", 19),
        ("3.9", 21),
        ("4.0", 25),
        ("4.0-IV1", 23),
        ("4.3.1", 30),
        ("4.4-IV0", 31),
        ("4.4", 33),
    ],
)
def test_a_release_is_its_last_metadata_version(release: str, level: int) -> None:
    assert metadata_version_of(release) == level
    assert release_of(level).startswith(release[:3])


def test_a_new_cluster_has_the_levels_of_its_release() -> None:
    later = {
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "share.version": 2,
        "streams.version": 1,
        "transaction.version": 2,
    }
    assert initial_levels(33, {}) == {"metadata.version": 33, **later}
    assert initial_levels(31, {}) == {"metadata.version": 31, **later}
    assert initial_levels(30, {}) == {"metadata.version": 30, **later, "share.version": 1}
    assert initial_levels(30, {"share.version": 2}) == {"metadata.version": 30, **later}
    assert initial_levels(25, {"group.version": 0}) == {"metadata.version": 25, "transaction.version": 2}
    assert initial_levels(21, {}) == {"metadata.version": 21}


@pytest.mark.parametrize(
    ("argument", "error"),
    [
        ("SCRAM-SHA-256", "Failed to find equals sign"),
        ("SCRAM-SHA-1=[name=a,password=b]", "mechanism SCRAM-SHA-1 is not supported"),
        ("SCRAM-SHA-256=name=a]", "start with"),
        ("SCRAM-SHA-256=[name=a", "end with"),
        ("SCRAM-SHA-256=[password=secret]", "You must supply 'name'"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=YCE=]", "You must supply 'salt' with 'saltedpassword'"),
        ("SCRAM-SHA-256=[name=a,salt=%,password=secret]", "Failed to decode given salt"),
        ("SCRAM-SHA-256=[name=a,iterations=4095,password=secret]", "must be >= 4096"),
        ("SCRAM-SHA-256=[name=a,iterations=16385,password=secret]", "must be <= 16384"),
        ("SCRAM-SHA-256=[name=a,iterations=x,password=secret]", "Failed to parse iterations count: x"),
        ("SCRAM-SHA-256=[name=a,secret]", "No equals sign found in SCRAM component"),
        ("SCRAM-SHA-256=[name=a,password=secret,colour=red]", "Unknown SCRAM configurations: colour"),
    ],
)
def test_a_nonsense_credential_is_reported_without_its_password(argument: str, error: str) -> None:
    with pytest.raises(ValueError, match=error) as raised:
        credential(argument, lambda: b"salt")
    assert "secret" not in str(raised.value)


def test_a_salt_is_drawn_where_none_is_given() -> None:
    made = credential("SCRAM-SHA-512=[name=a,password=b]", lambda: b"drawn")
    assert (made.salt, made.iterations, made.mechanism) == (b"drawn", 4096, 2)
