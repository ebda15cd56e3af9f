"""Settings from the environment, as the apache/kafka container image takes them (KafkaDockerWrapper).

`KAFKA_NUM_PARTITIONS=3` is `num.partitions=3`: one underscore is a dot, two an underscore, three a dash.
Bitnami's `KAFKA_CFG_` prefix is taken as well. `CLUSTER_ID` is the id that a new data folder gets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

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


class EnvironmentVariables(NamedTuple):
    """What the environment says: settings, and a new folder's cluster id."""

    settings: Layer
    cluster_id: Setting | None


def read_environment(environ: Mapping[str, str]) -> EnvironmentVariables:
    """The settings among the environment's variables.

    As in the image, `listeners` follow from the advertised ones where the environment doesn't set them:
    the same ports, on every interface.
    """
    settings: Layer = {}
    for variable in sorted(environ):
        if variable.startswith(PREFIX) and variable not in NOT_SETTINGS:
            name = setting_name(variable)
            if name:
                settings[name] = Setting(environ[variable], variable)
    advertised = settings.get("advertised.listeners")
    if advertised is not None and advertised.value and not _is_set(settings, "listeners"):
        every_interface = ",".join(map(_on_every_interface, advertised.value.split(",")))
        settings["listeners"] = Setting(every_interface, advertised.origin)
    cluster_id = environ.get("CLUSTER_ID", "").strip()
    return EnvironmentVariables(settings, Setting(cluster_id, "CLUSTER_ID") if cluster_id else None)


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
