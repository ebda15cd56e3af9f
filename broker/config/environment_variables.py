"""Settings from the environment, as the apache/kafka container image takes them (KafkaDockerWrapper).

`KAFKA_NUM_PARTITIONS=3` is `num.partitions=3`: one underscore is a dot, two an underscore, three a dash.
Bitnami's `KAFKA_CFG_` prefix is taken as well. `CLUSTER_ID`, or bitnami's name of it, is the id that a new data folder
gets. `KAFKA_CREATE_TOPICS=orders:3:1,counts:1:1:compact` has topics made, as the wurstmeister image did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from broker.config.errors import UsageError
from broker.config.settings import Layer, Setting

PREFIX = "KAFKA_"
BITNAMI_PREFIX = "KAFKA_CFG_"

# For the JVM, its loggers and the start scripts: no settings of the broker.
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
"""The strongest first."""

CREATE_TOPICS = "KAFKA_CREATE_TOPICS"
CREATE_TOPICS_SEPARATOR = "KAFKA_CREATE_TOPICS_SEPARATOR"

_READ_OTHERWISE = NOT_SETTINGS.union(CLUSTER_IDS, (CREATE_TOPICS, CREATE_TOPICS_SEPARATOR))


class FirstTopic(NamedTuple):
    """A topic that is to be there once the broker has started; -1 partitions or replicas are the broker's defaults."""

    name: str
    partitions: int
    replicas: int
    cleanup_policy: str | None


class EnvironmentVariables(NamedTuple):
    """What the environment says: settings, a new folder's cluster id, topics."""

    settings: Layer
    cluster_id: Setting | None
    topics: Sequence[FirstTopic] = ()


def read_environment(environ: Mapping[str, str]) -> EnvironmentVariables:
    """The settings among the environment's variables.

    As in the image, `listeners` follow from the advertised ones where the environment doesn't set them:
    the same ports, on every interface. Raises UsageError for topics in another form,
    and for two of one name.
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
            raise UsageError(f"{CREATE_TOPICS}: {topic.name} is there twice")
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
