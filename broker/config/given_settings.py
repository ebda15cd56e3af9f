"""The settings that a user gives in the environment and in .properties files: their text, and where it comes from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from broker.config.broker_definitions import BROKER_SYNONYMS
from broker.config.definitions import UsageError


class Setting(NamedTuple):
    """A value as text, and where it comes from: `server.properties:12`, `-o`, `KAFKA_LOG_DIRS`."""

    value: str
    origin: str


Layer: TypeAlias = dict[str, Setting]
"""The settings from one place, by name."""

_SAME_SETTING: tuple[tuple[str, ...], ...] = (("node.id", "broker.id"), ("log.dirs", "log.dir"))


def other_names(name: str) -> Iterable[str]:
    """The names of the same setting, in other units or forms."""
    for names in _SAME_SETTING:
        if name in names:
            return names
    return BROKER_SYNONYMS.get(name, ())


def layered(layers: Iterable[Mapping[str, Setting]]) -> Layer:
    """Merge the layers; later ones take precedence.

    A setting removes its other names from lower layers: `log.retention.hours` on the command line beats
    `log.retention.ms` in the file, although Kafka prefers milliseconds if both are in one place.
    """
    merged: Layer = {}
    for layer in layers:
        for name in layer:
            for other in other_names(name):
                if other not in layer:
                    merged.pop(other, None)
        merged.update(layer)
    return merged


# --- The environment, read as the apache/kafka container image does (KafkaDockerWrapper) --------------------
# `KAFKA_NUM_PARTITIONS=3` is `num.partitions=3`: one underscore is a dot, two an underscore, three a dash.
# Bitnami's `KAFKA_CFG_` prefix works, too. `CLUSTER_ID`, or bitnami's name for it, is the id of a new data
# folder. `KAFKA_CREATE_TOPICS=orders:3:1,counts:1:1:compact` creates topics, as the wurstmeister image did.

PREFIX = "KAFKA_"
BITNAMI_PREFIX = "KAFKA_CFG_"

# For the JVM, its loggers and the start scripts: not settings of the broker.
NOT_SETTINGS = frozenset(
    (
        "KAFKA_VERSION",
        "KAFKA_HEAP_OPTS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_OPTS",
        "KAFKA_JMX_OPTS",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_JMX_HOSTNAME",
    )
)

CLUSTER_IDS = ("CLUSTER_ID", "KAFKA_KRAFT_CLUSTER_ID")
"""In order of precedence."""

CREATE_TOPICS = "KAFKA_CREATE_TOPICS"
CREATE_TOPICS_SEPARATOR = "KAFKA_CREATE_TOPICS_SEPARATOR"

_READ_OTHERWISE = NOT_SETTINGS.union(CLUSTER_IDS, (CREATE_TOPICS, CREATE_TOPICS_SEPARATOR))


class FirstTopic(NamedTuple):
    """A topic to create at the start. -1 partitions or replicas are the broker's defaults."""

    name: str
    partitions: int
    replicas: int
    cleanup_policy: str | None


class EnvironmentVariables(NamedTuple):
    """The environment's settings, the cluster id for a new folder, and topics."""

    settings: Layer
    cluster_id: Setting | None
    topics: Sequence[FirstTopic] = ()


def read_environment(environ: Mapping[str, str]) -> EnvironmentVariables:
    """Read the settings from the environment's variables.

    As in the image, `listeners` follow from the advertised ones if the environment doesn't set them: the same
    ports, on every interface. Raises UsageError for topics in another form, and for two topics with one name.
    """
    settings: Layer = {}
    for variable in sorted(environ):
        if variable.startswith(PREFIX) and variable not in _READ_OTHERWISE:
            name = setting_name(variable)
            if name:
                settings[name] = Setting(environ[variable], variable)
    advertised = settings.get("advertised.listeners")
    if advertised is not None and advertised.value and not _is_set(settings, "listeners"):
        every_interface = ",".join(map(_on_every_interface, advertised.value.split(",")))
        settings["listeners"] = Setting(every_interface, advertised.origin)
    cluster_ids = [Setting(environ.get(variable, "").strip(), variable) for variable in CLUSTER_IDS]
    cluster_id = next((each for each in cluster_ids if each.value), None)
    separator = environ.get(CREATE_TOPICS_SEPARATOR) or ","
    return EnvironmentVariables(
        settings, cluster_id, _first_topics(environ.get(CREATE_TOPICS, "").split(separator))
    )


def _first_topics(texts: Sequence[str]) -> Sequence[FirstTopic]:
    topics = [_first_topic(text.strip()) for text in texts if text.strip()]
    named: set[str] = set()
    for topic in topics:
        if topic.name in named:
            raise UsageError(f"{CREATE_TOPICS}: {topic.name} is named twice")
        named.add(topic.name)
    return topics


def _first_topic(text: str) -> FirstTopic:
    name, *rest = (part.strip() for part in text.split(":"))
    try:
        partitions, replicas = map(int, rest[:2])
    except ValueError:
        partitions = replicas = 0
    if not name or not rest or len(rest) > 3 or 0 in (partitions, replicas):
        raise UsageError(f"{CREATE_TOPICS}: {text}: NAME:PARTITIONS:REPLICAS[:CLEANUP.POLICY] is the form")
    return FirstTopic(name, partitions, replicas, rest[2] if rest[2:] else None)


def _is_set(settings: Layer, name: str) -> bool:
    return name in settings and bool(settings[name].value)


def setting_name(variable: str) -> str:
    """`KAFKA_LOG_DIRS` -> `log.dirs`, `KAFKA_A__B___C` -> `a_b-c`."""
    prefix = BITNAMI_PREFIX if variable.startswith(BITNAMI_PREFIX) else PREFIX
    return variable[len(prefix) :].lower().replace("_", ".").replace("...", "-").replace("..", "_")


def _on_every_interface(listener: str) -> str:
    name, separator, address = listener.partition("://")
    _, colon, port = address.rpartition(":")
    return f"{name}://0.0.0.0:{port}" if separator and colon else listener


# --- Java's .properties files -------------------------------------------------------------------------------
# There is one difference: Java reads Latin-1. Here a file that is valid UTF-8 is read as UTF-8, so that the
# names of folders come out as written.

_WHITE = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    """One setting of a file. `line` counts from 1."""

    name: str
    value: str
    line: int


def read_properties(path: str) -> list[Property]:
    """Return the settings of a file in order, including repeated ones. Raises UsageError."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return parse_properties(text, path)


def parse_properties(text: str, path: str = "server.properties") -> list[Property]:
    """Return the settings in a file's text. Raises UsageError for a broken unicode escape, the only possible
    error."""
    found = []
    for line, logical in _logical_lines(text):
        key, value = _split(logical)
        try:
            found.append(Property(_unescaped(key), _unescaped(value), line))
        except ValueError:
            raise UsageError(f"{path}:{line}: Malformed \\uxxxx encoding.") from None
    return found


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Return the lines without comments, blank lines and leading white space. A backslash at the end joins
    the next line."""
    lines: list[tuple[int, str]] = []
    pending: tuple[int, str] | None = None
    for number, natural in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        line = natural.lstrip(_WHITE)
        if pending is None:
            if not line or line[0] in "#!":
                continue
            start, so_far = number, ""
        else:
            start, so_far = pending
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending = (start, so_far + line[:-1])
        else:
            pending = None
            lines.append((start, so_far + line))
    if pending is not None:
        lines.append(pending)
    return [(number, line) for number, line in lines if line]


def _split(line: str) -> tuple[str, str]:
    """Split a line into key and value. The key ends at the first unescaped `=`, `:` or white space."""
    end = 0
    while end < len(line) and line[end] not in "=:" + _WHITE:
        end += 2 if line[end] == "\\" else 1
    value = line[end:].lstrip(_WHITE)
    if value[:1] in ("=", ":"):
        value = value[1:].lstrip(_WHITE)
    return line[:end], value


def _unescaped(text: str) -> str:
    """Resolve escapes. Raises ValueError for a \\u without four hexadecimal digits."""
    if "\\" not in text:
        return text
    out = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\":
            out.append(character)
            continue
        escaped = text[position : position + 1]
        position += 1
        if escaped == "u":
            digits = text[position : position + 4]
            position += 4
            if len(digits) != 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
                raise ValueError(digits)
            out.append(chr(int(digits, 16)))
        else:
            out.append(_ESCAPES.get(escaped, escaped))
    # Java's characters are UTF-16, so a pair of escapes may be one character.
    return "".join(out).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
