"""Arguments, file and environment together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from broker.config.definitions import UsageError
from broker.process.command_line import Options, default_data_directory, parse_command_line

HOME = {"HOME": "/home/somebody"}


def parse(*arguments: str, environ: dict[str, str] | None = None) -> Options:
    return parse_command_line(arguments, {**HOME, **(environ or {})})


def refusal(*arguments: str, environ: dict[str, str] | None = None) -> UsageError:
    with pytest.raises(UsageError) as raised:
        parse(*arguments, environ=environ)
    assert "\n" not in str(raised.value)
    return raised.value


@pytest.fixture
def server_properties(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text("num.partitions=2\nnum.io.threads=20\nbroker.rack=file\nlog.dirs=/from/file\n")
    return path


def bound(options: Options) -> list[tuple[str, str, int, tuple[str, int] | None]]:
    return [(one.name, one.host, one.port, one.advertised) for one in options.config.listeners]


def test_without_arguments_there_are_the_defaults() -> None:
    options = parse()
    assert bound(options) == [("PLAINTEXT", "127.0.0.1", 9092, ("127.0.0.1", 9092))]
    assert options.config.log_dirs == ("/home/somebody/.local/share/barnabas",)
    assert (options.control_fd, options.temporary, options.log.level) == (None, False, "info")
    assert options.config.warnings == []


def test_overrides_go_before_the_environment_and_that_before_the_file(server_properties: Path) -> None:
    environ = {"KAFKA_NUM_PARTITIONS": "3", "KAFKA_NUM_IO_THREADS": "30"}
    config = parse("--config", str(server_properties), "-o", "num.partitions=4", environ=environ).config
    assert config.get("num.partitions") == 4
    assert config.get("num.io.threads") == 30
    assert config.get("broker.rack") == "file"
    assert config.origin("num.partitions") == "-o"
    assert config.origin("num.io.threads") == "KAFKA_NUM_IO_THREADS"
    assert config.origin("broker.rack") == f"{server_properties}:3"


def test_durable_syncs_each_record_whatever_the_environment_says() -> None:
    environ = {"KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": "9"}
    config = parse_command_line(["--durable"], environ).config
    assert config.get("log.flush.interval.messages") == 1
    config = parse_command_line(["--durable", "-o", "log.flush.interval.messages=3"], environ).config
    assert config.get("log.flush.interval.messages") == 3


def test_an_override_may_be_given_several_times_and_hold_any_value() -> None:
    config = parse("-o", "num.partitions=3", "-o", "num.partitions = 4", "-o", "broker.rack=a=b").config
    assert (config.get("num.partitions"), config.get("broker.rack")) == (4, "a=b")


@pytest.mark.parametrize("override", ["num.partitions", "=3", ""])
def test_an_override_that_is_no_setting_is_wrong_use(override: str) -> None:
    error = refusal("-o", override)
    assert (str(error), error.exit_status) == (f"-o {override}: KEY=VALUE is the form", 2)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--nonsense"],
        ["--prt", "1"],
        ["--port"],
        ["--port", "x"],
        ["--port", "65536"],
        ["--log-level", "loud"],
        ["x"],
    ],
)
def test_a_nonsense_command_line_is_wrong_use(arguments: Sequence[str]) -> None:
    assert refusal(*arguments).exit_status == 2


def test_a_bad_value_in_the_file_is_reported_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("# partitions\n\nnum.partitions=many\n")
    error = refusal("--config", str(path))
    expected = f"{path}:3: Invalid value many for configuration num.partitions: Not a number of type INT"
    assert (str(error), error.exit_status) == (expected, 2)


def test_a_bad_value_in_the_environment_is_reported_with_its_variable() -> None:
    assert str(refusal(environ={"KAFKA_NUM_PARTITIONS": "0"})).startswith(
        "KAFKA_NUM_PARTITIONS: Invalid value 0 "
    )


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    assert str(refusal("--config", str(tmp_path / "nope"))) == f"{tmp_path}/nope: No such file or directory"


# --- data ---------------------------------------------------------------------------------------------------


def test_data_goes_where_the_strongest_says(server_properties: Path) -> None:
    file = ["--config", str(server_properties)]
    environ = {"KAFKA_LOG_DIRS": "/from/environment, /second"}
    assert parse(*file).config.log_dirs == ("/from/file",)
    assert parse(*file, environ=environ).config.log_dirs == ("/from/environment", "/second")
    assert parse(*file, "--data", "/from/flag", environ=environ).config.log_dirs == ("/from/flag",)
    assert parse(*file, "--data", "/from/flag", "-o", "log.dir=/from/override").config.log_dirs == (
        "/from/override",
    )


@pytest.mark.parametrize("data", ["", "a,b"])
def test_a_folder_that_cannot_be_is_wrong_use(data: str) -> None:
    assert refusal("--data", data).exit_status == 2


@pytest.mark.parametrize(
    ("environ", "directory"),
    [
        ({"HOME": "/h", "XDG_DATA_HOME": "/data"}, "/data/barnabas"),
        ({"HOME": "/h", "XDG_DATA_HOME": "relative"}, "/h/.local/share/barnabas"),
        ({"HOME": "/h"}, "/h/.local/share/barnabas"),
    ],
)
def test_the_default_folder_is_the_users(environ: dict[str, str], directory: str) -> None:
    assert default_data_directory(environ) == directory


def test_a_temporary_folder_must_not_hold_anything(tmp_path: Path) -> None:
    assert parse("--temporary", "--data", str(tmp_path)).temporary
    assert parse("--temporary", "--data", str(tmp_path / "absent")).config.log_dirs == (
        str(tmp_path / "absent"),
    )
    (tmp_path / "diary").write_text("dear diary")
    expected = f"--temporary: {tmp_path} isn't empty, and would be removed at exit"
    assert str(refusal("--temporary", "--data", str(tmp_path))) == expected


def test_a_program_may_start_again_on_the_temporary_folder_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("of the first start")
    again = parse("--control-fd", "3", "--temporary", "--data", str(tmp_path))
    assert again.config.log_dirs == (str(tmp_path),)
    other = tmp_path.parent / "somebody-elses"
    other.mkdir()
    (other / "diary").write_text("dear diary")
    refusal("--control-fd", "3", "--temporary", "--data", str(tmp_path), "-o", f"log.dirs={other}")


def test_an_unnamed_temporary_folder_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (directory,) = parse("--temporary").config.log_dirs
    assert [str(path) for path in tmp_path.iterdir()] == [directory]
    refusal("--temporary", "-o", "num.partitions=x")
    assert [str(path) for path in tmp_path.iterdir()] == [directory]


def test_a_temporary_folder_goes_before_those_of_file_and_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server_properties: Path
) -> None:
    folders = tmp_path / "temporary"
    folders.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folders))
    environ = {"KAFKA_LOG_DIRS": str(tmp_path), "KAFKA_METADATA_LOG_DIR": str(tmp_path / "metadata")}
    config = parse("--temporary", "--config", str(server_properties), environ=environ).config
    assert [*config.log_dirs] == [*map(str, folders.iterdir())]
    assert config.get("metadata.log.dir") is None


# --- listeners ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--port", "0"], ("127.0.0.1", 0, ("127.0.0.1", 0))),
        (["--port", "19092"], ("127.0.0.1", 19092, ("127.0.0.1", 19092))),
        (["--host", "10.0.0.1"], ("10.0.0.1", 9092, ("10.0.0.1", 9092))),
        (["--host", "::1", "--port", "7"], ("::1", 7, ("::1", 7))),
        (["--host", "[::1]"], ("::1", 9092, ("::1", 9092))),
        (["--host", "h", "-o", "listeners=PLAINTEXT://other:1"], ("other", 1, ("other", 1))),
    ],
)
def test_host_and_port_say_where_to_listen(arguments: Sequence[str], expected: tuple[object, ...]) -> None:
    (listener,) = bound(parse(*arguments))
    assert listener[1:] == expected


def test_host_and_port_move_the_listeners_of_the_file_but_not_the_controllers(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(
        "listeners=OUT://:9092,CONTROLLER://:9093\nlistener.security.protocol.map=OUT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
    )
    options = parse("--config", str(path), "--host", "127.0.0.1", "--port", "5")
    assert bound(options) == [("OUT", "127.0.0.1", 5, ("127.0.0.1", 5))]
    assert options.config.get_list("listeners")[1] == "CONTROLLER://:9093"


def test_another_port_is_advertised_too_and_another_host_is_not() -> None:
    environ = {
        "KAFKA_LISTENERS": "PLAINTEXT://:9092",
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://outside:9092",
    }
    assert bound(parse("--host", "127.0.0.1", environ=environ)) == [
        ("PLAINTEXT", "127.0.0.1", 9092, ("outside", 9092))
    ]
    assert bound(parse("--host", "127.0.0.1", "--port", "5", environ=environ)) == [
        ("PLAINTEXT", "127.0.0.1", 5, ("127.0.0.1", 5))
    ]


def test_one_port_for_several_listeners_is_wrong_use() -> None:
    environ = {
        "KAFKA_LISTENERS": "A://:1,B://:2",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "A:PLAINTEXT,B:PLAINTEXT",
    }
    error = refusal("--port", "5", environ=environ)
    assert error.exit_status == 2
    assert str(error).startswith("--port: one port can't serve the listeners A, B")


def test_a_nonsense_listener_is_reported_with_its_place_though_it_was_to_be_moved() -> None:
    error = refusal("--port", "5", environ={"KAFKA_LISTENERS": "nonsense"})
    assert str(error).startswith("KAFKA_LISTENERS: listeners: Unable to parse nonsense")


def test_a_container_listens_on_the_ports_that_it_advertises() -> None:
    environ = {
        "KAFKA_ADVERTISED_LISTENERS": "INSIDE://kafka:29092,OUTSIDE://localhost:9092",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }
    assert bound(parse(environ=environ)) == [
        ("INSIDE", "0.0.0.0", 29092, ("kafka", 29092)),
        ("OUTSIDE", "0.0.0.0", 9092, ("localhost", 9092)),
    ]


# --- for programs -------------------------------------------------------------------------------------------


def test_a_broker_started_by_a_program_does_not_read_the_environment() -> None:
    environ = {"KAFKA_NUM_PARTITIONS": "x", "CLUSTER_ID": "5L6g3nShT-eMCtK--X86sw"}
    options = parse("--control-fd", "3", "--log-level", "debug", environ=environ)
    assert (options.control_fd, options.log.level) == (3, "debug")
    assert (options.config.get("num.partitions"), options.config.cluster_id) == (1, None)


def test_topics_of_the_environment_are_made_by_a_broker_and_not_by_a_mere_controller() -> None:
    environ = {"KAFKA_CREATE_TOPICS": "orders:3:1"}
    assert [topic.name for topic in parse(environ=environ).topics] == ["orders"]
    of_controller = {
        "KAFKA_PROCESS_ROLES": "controller",
        "KAFKA_NODE_ID": "100",
        "KAFKA_LISTENERS": "CONTROLLER://:9093",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "100@controller:9093",
    }
    options = parse(environ={**environ, **of_controller})
    assert not options.topics
    assert "KAFKA_CREATE_TOPICS: this node isn't a broker, and creates no topics" in options.config.warnings


def test_the_cluster_id_comes_from_the_environment() -> None:
    given = "5L6g3nShT-eMCtK--X86sw"
    assert parse(environ={"CLUSTER_ID": given}).config.cluster_id == given


def test_the_cluster_id_of_the_command_line_wins_and_has_to_be_one() -> None:
    given, other = "5L6g3nShT-eMCtK--X86sw", "-L6g3nShT-eMCtK--X86sw"
    assert parse(f"--cluster-id={other}", environ={"CLUSTER_ID": given}).config.cluster_id == other
    with pytest.raises(UsageError, match="--cluster-id mine: a cluster id has 22 characters") as raised:
        parse("--cluster-id", "mine")
    assert raised.value.exit_status == 2


def test_help_shows_the_options_meant_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        parse("--help")
    shown = capsys.readouterr().out
    assert raised.value.code == 0
    assert "--data" in shown
    assert "--control-fd" not in shown
    assert "--temporary-root" not in shown
    assert "--temporary " in shown


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        parse("--version")
    assert raised.value.code == 0
    assert capsys.readouterr().out.startswith("barnabas ")


# --- started by a program -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("num.partition", "; did you mean num.partitions?"),
        ("cleanup.policy", "; did you mean log.cleanup.policy?"),
        ("nonsense", ""),
    ],
)
@pytest.mark.parametrize("of_a_program", [["--control-fd", "3", "--data", "d"], []])
def test_a_name_that_kafka_does_not_have_is_refused_where_it_was_typed(
    name: str, hint: str, of_a_program: list[str]
) -> None:
    error = refusal(*of_a_program, "-o", f"{name}=3")
    assert str(error) == f"-o: {name} isn't a setting of a Kafka broker{hint}"
    assert error.exit_status == 2


def test_a_name_that_kafka_does_not_have_is_warned_of_where_it_was_written_before(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("num.partition=3\n")
    meant = "isn't a setting of a Kafka broker and is ignored; did you mean"
    assert parse("--config", str(path), environ={"KAFKA_NUM_IO_THREAD": "3"}).config.warnings == [
        f"{path}:1: num.partition {meant} num.partitions?",
        f"KAFKA_NUM_IO_THREAD: num.io.thread {meant} num.io.threads?",
    ]


@pytest.mark.parametrize(
    "name",
    [
        "zookeeper.connect",
        "listener.name.a.ssl.keystore.type",
        "log.retention.hours",
        "leader.replication.throttled.rate",
    ],
)
def test_a_name_that_kafka_has_or_had_is_taken(name: str) -> None:
    parse("-o", f"{name}=3")
