"""`barnabas` and `python -m broker`: turns arguments, files and the environment into a configuration.

The sources, the strongest first:

1. `-o key=value`
2. `--host`, `--port`, `--data`, `--durable`, `--cluster-id`, `--release-version`
3. the environment: `KAFKA_NUM_PARTITIONS` and so on (not read with `--control-fd`: a program that starts the broker
   passes all settings itself)
4. `--config server.properties`
5. the defaults: Kafka's, except for those in `broker.config.broker_config`

A name that Kafka doesn't know is an error in `-o`, where somebody typed it for this broker. In a file or the
environment, which may be for other programs too, it leads to a warning, as in Kafka.

Importing this module and building a configuration takes a few milliseconds: each start in a test waits for it.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple, NoReturn

from broker.config.assembly import (
    TYPED,
    assemble,
    check_names,
    directories_given,
    is_cluster_id,
    settings_of,
    usage_error,
)
from broker.config.broker_config import DEFAULTS, BrokerConfig
from broker.config.definitions import ConfigError, UsageError
from broker.config.given_settings import (
    CREATE_TOPICS,
    EnvironmentVariables,
    FirstTopic,
    Layer,
    Setting,
    layered,
    read_environment,
)
from broker.config.listeners import moved

HELP_COLUMNS = 100
LOG_LEVELS = ("debug", "info", "warning", "error")


class LogOptions(NamedTuple):
    """The values of `--log-level` and `--log-format`."""

    level: str
    format: str


class Options(NamedTuple):
    """The options of a run.

    `control_fd`: a socket to the program that started the broker. It gets a line when the broker is ready; when it
    closes, the broker stops. `temporary`: the data folder, empty or absent now, is removed at exit, together with
    `temporary_root`, a folder that the nodes of a cluster share, or none: the last node to end leaves nothing there.
    `only_checks`: check the settings and start nothing. `topics`: to create before the broker reports that it has
    started. `console`: the address for a console, "" for the console's default.
    """

    config: BrokerConfig
    control_fd: int | None
    temporary: bool
    log: LogOptions
    temporary_root: Sequence[str] = ()
    only_checks: bool = False
    topics: Sequence[FirstTopic] = ()
    console: str | None = None


def parse_command_line(arguments: Sequence[str], environ: Mapping[str, str] = os.environ) -> Options:
    """Parse arguments (without the program's name) and environment into options. Raises UsageError.

    `--help` and `--version` print and raise SystemExit(0).
    """
    options = _parser().parse_args(arguments)
    if options.control_fd is not None and options.control_fd < 0:
        raise UsageError("--control-fd: a file descriptor isn't negative")
    environment = (
        EnvironmentVariables({}, None) if options.control_fd is not None else read_environment(environ)
    )
    file = _file_layer(options.config)
    overrides = {**_inherited_layer(options.override_fd), **_override_layer(options.override)}
    check_names(overrides)
    below = layered([file, environment.settings])
    if options.control_fd is None:
        below |= _static_jaas(environ, below)
    flags: Layer = {}
    left_out: Setting | None = None
    if options.data is not None:
        flags["log.dirs"] = _data_setting(options.data)
    if options.host is not None or options.port is not None:
        flags["listeners"] = _moved_listeners(below, options.host, options.port)
        if options.port is not None:
            left_out = below.pop("advertised.listeners", None)  # it names the port that --port replaces
    if options.durable:
        flags["log.flush.interval.messages"] = Setting("1", "--durable")
    layers = [below, flags, overrides]
    # --temporary is about all data, whatever file and environment say for other starts.
    drawn = options.temporary and not directories_given([flags, overrides])
    if drawn:
        below.pop("metadata.log.dir", None)
        flags["log.dirs"] = Setting(_temporary_directory(), "--temporary")
    elif not directories_given(layers):
        flags["log.dirs"] = Setting(default_data_directory(environ), "the default")
    try:
        config = assemble(
            layers,
            cluster_id=_cluster_id(options.cluster_id) or environment.cluster_id,
            release_version=_release_version(options.release_version),
        )
    except UsageError:
        if drawn:
            os.rmdir(flags["log.dirs"].value)
        raise
    if left_out is not None:
        config.warnings.append(
            f"--port: advertised.listeners={left_out.value} ({left_out.origin}) is left out: it names another port"
        )
    # A program may start the broker again on a temporary folder that the program owns.
    if options.temporary and not (options.control_fd is not None and [*config.log_dirs] == [options.data]):
        _check_empty(config.log_dirs)
    topics = _first_topics(environment, config)
    roots = () if options.temporary_root is None else (options.temporary_root,)
    log = LogOptions(options.log_level, options.log_format)
    return Options(
        config, options.control_fd, options.temporary, log, roots, options.check, topics, options.console
    )


def _first_topics(environment: EnvironmentVariables, config: BrokerConfig) -> Sequence[FirstTopic]:
    if environment.topics and config.is_only_controller:
        config.warnings.append(f"{CREATE_TOPICS}: this node isn't a broker, and creates no topics")
        return ()
    return environment.topics


def default_data_directory(environ: Mapping[str, str]) -> str:
    """The default folder for data, in the user's data directory by XDG or Windows."""
    if os.name == "nt" and environ.get("LOCALAPPDATA"):
        return os.path.join(environ["LOCALAPPDATA"], "barnabas")
    base = environ.get("XDG_DATA_HOME", "")
    if not os.path.isabs(base):  # the specification says to ignore a relative path
        base = os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".local", "share")
    return os.path.join(base, "barnabas")


def broker_help() -> str:
    """The text of `--help`."""
    return _parser().format_help()


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (--help lists what there is)")


class _Help(argparse.HelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=HELP_COLUMNS)  # asking the terminal loads shutil: 2 ms of each start


class _PrintVersion(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(
            f"barnabas {_version()}, a Kafka 4.4 broker (levels up to 4.4-IV2; tried with Kafka 4.4.0 and 4.3.1)"
        )
        parser.exit()


def _parser() -> _Parser:
    parser = _Parser(
        prog="barnabas",
        description="A Kafka broker on one node, in Kafka's own files. `barnabas cluster` starts several, and "
        "`barnabas format` makes folders as kafka-storage format does; both have a --help of their own.",
        epilog="Settings are Kafka's. From the strongest: -o; --host, --port, --data; the environment "
        "(KAFKA_NUM_PARTITIONS=3 is num.partitions=3); the file; the defaults.",
        allow_abbrev=False,
        formatter_class=_Help,
    )
    parser.add_argument(
        "--data", metavar="DIR", help="folder for the data (default: the user's data directory)"
    )
    parser.add_argument(
        "--temporary",
        action="store_true",
        help="keep the data in a temporary folder (or that of --data, if it is empty), which is removed at the end",
    )
    parser.add_argument(
        "--port", type=_port, help="port to listen on, 0 for any that is free (default: 9092)"
    )
    parser.add_argument("--host", help="address to listen on, 0.0.0.0 for all (default: 127.0.0.1)")
    parser.add_argument(
        "--durable",
        action="store_true",
        help="sync each record before it is acknowledged: log.flush.interval.messages=1",
    )
    parser.add_argument("--config", metavar="FILE", help="a server.properties of Kafka's")
    parser.add_argument(
        "-o",
        dest="override",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="one setting, such as num.partitions=3; may be given several times",
    )
    parser.add_argument(
        "--cluster-id",
        metavar="ID",
        help="the cluster that a new folder is of (default: CLUSTER_ID, or a new one)",
    )
    parser.add_argument(
        "--release-version",
        metavar="RELEASE",
        help="the Kafka whose level a new cluster begins with, such as 4.3 or 4.3-IV0 (default: 4.4-IV2)",
    )
    _add_console_option(parser)
    _add_log_options(parser)
    parser.add_argument(
        "--check",
        action="store_true",
        help="check the settings and start nothing: exit status 2 if one is wrong",
    )
    parser.add_argument("--version", action=_PrintVersion, nargs=0, help="print the version and exit")
    parser.add_argument("--control-fd", type=int, metavar="N", help=argparse.SUPPRESS)
    parser.add_argument("--override-fd", type=int, metavar="N", help=argparse.SUPPRESS)
    parser.add_argument("--temporary-root", metavar="DIR", help=argparse.SUPPRESS)
    return parser


def _add_console_option(parser: _Parser) -> None:
    parser.add_argument(
        "--console",
        nargs="?",
        const="",
        metavar="HOST:PORT",
        help="a page in the browser beside the broker, which shows what happens (default: 127.0.0.1:8095)",
    )


def _add_log_options(parser: _Parser) -> None:
    parser.add_argument("--log-level", choices=LOG_LEVELS, default="info", help="what to log (default: info)")
    parser.add_argument(
        "--log-format",
        choices=("text", "json"),
        default="text",
        help="lines for people, or JSON (default: text)",
    )


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"{text} is not a port (0 to 65535)")
    return int(text)


def _file_layer(path: str | None) -> Layer:
    if path is None:
        return {}
    from broker.config.given_settings import read_properties

    return {found.name: Setting(found.value, f"{path}:{found.line}") for found in read_properties(path)}


def _override_layer(overrides: Sequence[str]) -> Layer:
    settings: dict[str, str] = {}
    for override in overrides:
        name, equals, value = override.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"-o {override}: KEY=VALUE is the form")
        settings[name.strip()] = value
    return settings_of(settings, TYPED)


def _static_jaas(environ: Mapping[str, str], below: Layer) -> Layer:
    """The settings in a JAAS file, if the environment names one. Raises UsageError."""
    if "java.security.auth.login.config" not in environ.get("KAFKA_OPTS", ""):
        return {}
    # Imported here, so that no other start waits for it.
    from broker.config.static_jaas import static_jaas

    return static_jaas(environ, below)


_MOST_INHERITED_BYTES = 16 * 1024 * 1024


def _inherited_layer(fd: int | None) -> Layer:
    """Settings from the program that started the broker, in a nameless file in the format of .properties files:
    passwords must not show up in a list of processes. Raises UsageError."""
    if fd is None:
        return {}
    from broker.config.given_settings import parse_properties

    try:
        with open(fd, "rb") as file:
            file.seek(0)
            text = file.read(_MOST_INHERITED_BYTES).decode()
    except (OSError, ValueError) as error:
        raise UsageError(f"--override-fd {fd}: {getattr(error, 'strerror', None) or error}") from None
    return settings_of({found.name: found.value for found in parse_properties(text)}, TYPED)


def _cluster_id(given: str | None) -> Setting | None:
    """The id that `--cluster-id` gives. Raises UsageError if it is invalid: unlike one in the environment, it can be
    meant only for this broker."""
    if given is None:
        return None
    if not is_cluster_id(given):
        raise UsageError(f"--cluster-id {given}: a cluster id has 22 characters of base64")
    return Setting(given, "--cluster-id")


def _release_version(given: str | None) -> str | None:
    """The release that `--release-version` gives. Raises UsageError if it is unknown."""
    if given is not None:
        from broker.controller.metadata_versions import metadata_version_of

        try:
            metadata_version_of(given)
        except ValueError as error:
            raise UsageError(f"--release-version {given}: {error}") from None
    return given


def _data_setting(data: str) -> Setting:
    if not data or "," in data:
        raise UsageError(f"--data {data}: it has to be a folder without a comma in its name")
    return Setting(os.path.expanduser(data), "--data")


def _moved_listeners(below: Layer, host: str | None, port: int | None) -> Setting:
    """The listeners of file and environment, or else the default ones, moved to another host or port."""
    listeners = below.get("listeners", Setting(DEFAULTS["listeners"].value, "the default"))
    controllers = below.get(
        "controller.listener.names", Setting(DEFAULTS["controller.listener.names"].value, "")
    )
    flag = "--host" if port is None else "--port"
    if host is not None:
        host = host.removeprefix("[").removesuffix("]")
    try:
        entries = moved(_split(listeners.value), _split(controllers.value), host, port)
    except ConfigError as error:
        if error.name is None:
            raise UsageError(f"{flag}: {error} ({listeners.origin})") from None
        raise usage_error(error, below) from None
    return Setting(",".join(entries), flag)


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _temporary_directory() -> str:
    from tempfile import mkdtemp

    return mkdtemp(prefix="barnabas-")


def _check_empty(directories: Sequence[str]) -> None:
    """Check that the folders to remove at exit are empty now. Raises UsageError."""
    for directory in directories:
        if os.path.isdir(directory) and os.listdir(directory):
            raise UsageError(f"--temporary: {directory} isn't empty, and would be removed at exit")


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("barnabas")
    except PackageNotFoundError:
        return "(not installed)"
