"""The configuration in force: what the broker was started with, and what was altered since.

A value comes from the first place that has it: this broker's dynamic settings, the cluster's, the static
ones (file, environment, command line), the default. Nothing is parsed before it is asked for; what was
parsed is kept until something is altered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from broker.config.broker_definitions import BROKER_SYNONYMS, broker_definition
from broker.config.connections_per_host import CONNECTIONS_PER_HOST, connections_per_host
from broker.config.parsing import parse_value
from broker.config.roles import (
    BOOTSTRAP_SERVERS,
    VOTERS,
    bootstrap_servers,
    is_only_controller,
    joins_a_cluster,
    voters,
)
from broker.config.settings import Setting
from broker.config.single_node import AT_MOST_ONE, DEFAULTS

if TYPE_CHECKING:
    from broker.config.definitions import ConfigDef, Value
    from broker.config.listeners import ListenerConfig


REPLICA_SELECTOR = "replica.selector.class"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class BrokerConfig:
    """Every setting of this broker, by Kafka's names.

    - `static`: what file, environment and command line say, with their origins. Never changes.
    - `dynamic_broker`, `dynamic_cluster`: what IncrementalAlterConfigs has set for this broker and for all.
    - `listeners`: the broker's addresses to bind, none where the node is only a controller.
    - `controller_listeners`: the controller's.
    - `closed_to_brokers`: the names of listeners that refuse what only brokers ask of each other.
    - `cluster_id`: the id for a new data folder, where the user gave one.
    - `warnings`: lines to log at the start.
    - `joins`: whether another node is the controller.
    - `generation`: counts alterations, so that others can keep what they derive.
    """

    __slots__ = (
        "_effective",
        "_parsed",
        "closed_to_brokers",
        "cluster_id",
        "controller_listeners",
        "dynamic_broker",
        "dynamic_cluster",
        "generation",
        "joins",
        "listeners",
        "static",
        "warnings",
    )

    def __init__(
        self,
        static: Mapping[str, Setting],
        *,
        listeners: tuple[ListenerConfig, ...] = (),
        cluster_id: str | None = None,
        warnings: Iterable[str] = (),
    ) -> None:
        self.static = static
        self.joins = joins_a_cluster(static)
        self.listeners = listeners
        self.controller_listeners: tuple[ListenerConfig, ...] = ()
        self.closed_to_brokers: frozenset[str] = frozenset()
        self.cluster_id = cluster_id
        self.warnings = list(warnings)
        self.dynamic_broker: Mapping[str, str] = {}
        self.dynamic_cluster: Mapping[str, str] = {}
        self.generation = 0
        self._parsed: dict[str, Value] = {}
        self._effective: dict[str, str] = {name: setting.value for name, setting in static.items()}

    # --- values ---------------------------------------------------------------------------------------------

    def get(self, name: str) -> Value:
        """The value in force. Raises ConfigError where it isn't legal (`assemble` rules that out)."""
        try:
            return self._parsed[name]
        except KeyError:
            definition = broker_definition(name)
            assert definition is not None, f"{name} is no setting"
            value = parse_value(definition, self.effective_text(definition))
            self._parsed[name] = value
            return value

    def get_int(self, name: str) -> int:
        """An INT, SHORT or LONG that isn't null."""
        value = self.get(name)
        assert isinstance(value, int), f"{name} is {value!r}"
        return value

    def get_optional_int(self, name: str) -> int | None:
        """An INT, SHORT or LONG, or None for null."""
        value = self.get(name)
        assert value is None or isinstance(value, int), f"{name} is {value!r}"
        return value

    def get_boolean(self, name: str) -> bool:
        """A BOOLEAN."""
        value = self.get(name)
        assert isinstance(value, bool), f"{name} is {value!r}"
        return value

    def get_string(self, name: str) -> str | None:
        """A STRING, CLASS or PASSWORD; None for null."""
        value = self.get(name)
        assert value is None or isinstance(value, str), f"{name} is {value!r}"
        return value

    def get_list(self, name: str) -> tuple[str, ...]:
        """A LIST; empty for null."""
        value = self.get(name)
        assert value is None or isinstance(value, tuple), f"{name} is {value!r}"
        return value or ()

    @property
    def node_id(self) -> int:
        """This node's id."""
        return self.get_int("node.id")

    @property
    def is_only_controller(self) -> bool:
        """Whether the node is no broker."""
        return is_only_controller(self.static)

    @property
    def selects_replicas(self) -> bool:
        """Whether consumers are sent to a replica in their rack."""
        return self.get_string(REPLICA_SELECTOR) == RACK_AWARE_SELECTOR

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """The folders for data, at least one: `log.dirs`, or else `log.dir`."""
        return self.get_list("log.dirs") or self.get_list("log.dir")

    @property
    def controllers(self) -> Sequence[tuple[str, int]]:
        """Where the quorum may be found, host and port each; empty where nobody says."""
        addresses = bootstrap_servers(self.get_list(BOOTSTRAP_SERVERS))
        return addresses or [*voters(self.get_list(VOTERS)).values()]

    @property
    def inter_broker_listener(self) -> str:
        """The listener by which the cluster's brokers reach each other: of this name on all of them."""
        name = self.get_string("inter.broker.listener.name")
        return (name or self.get_string("security.inter.broker.protocol") or "").upper()

    @property
    def max_connections_per_host(self) -> dict[str, int]:
        """`max.connections.per.ip.overrides`: host -> number."""
        return connections_per_host(self.get(CONNECTIONS_PER_HOST))

    # --- where they come from -------------------------------------------------------------------------------

    def effective_text(self, definition: ConfigDef) -> str | None:
        """The text that is in force, defaults included; None for null."""
        text = self._effective.get(definition.name)
        return self.default_text(definition) if text is None else text

    def default_text(self, definition: ConfigDef) -> str | None:
        """A setting's default here: our own where one node needs another than Kafka's."""
        name = definition.name
        of_several = self.joins or self.is_only_controller
        own = None if of_several and name in AT_MOST_ONE else DEFAULTS.get(name)
        return definition.default if own is None else own.value

    def text_given(self, name: str) -> str | None:
        """The text in force of any name that somebody has set, known or not; None where nobody has."""
        return self._effective.get(name)

    def effective_names(self) -> Iterable[str]:
        """Every name that somebody has set, known or not."""
        return self._effective

    def origin(self, name: str) -> str:
        """Where the value in force stands, for a message: `server.properties:12`, `-o`, `the default`, ..."""
        if name in self.dynamic_broker or name in self.dynamic_cluster:
            return "altered"
        return self.static[name].origin if name in self.static else "the default"

    # --- alterations ----------------------------------------------------------------------------------------

    def set_dynamic(self, *, broker: Mapping[str, str] | None, cluster: Mapping[str, str] | None) -> None:
        """Put the whole of what was altered for this broker, or for all, into force; None leaves a side as it is.

        Everything in them has been checked: see `dynamic_settings.set_dynamic`.
        """
        if cluster is not None:
            self.dynamic_cluster = cluster
        if broker is not None:
            self.dynamic_broker = broker
        self.generation += 1
        self._parsed = {}
        self._effective = self._overlaid()
        self._clamp_intervals()

    def _overlaid(self) -> dict[str, str]:
        """The layers over each other. A setting in another unit hides those below (overrideProps)."""
        effective = {name: setting.value for name, setting in self.static.items()}
        for layer in (self.dynamic_cluster, self.dynamic_broker):
            for name, text in layer.items():
                for synonym in BROKER_SYNONYMS.get(name, ()):
                    effective.pop(synonym, None)
                effective[name] = text
        return effective

    def _clamp_intervals(self) -> None:
        """Keep what the log says within the static bounds, which may be others since (clampDynamicConfigs)."""
        for group in ("group.consumer", "group.share", "group.streams"):
            name = f"{group}.assignment.interval.ms"
            if name in self._effective:
                lowest = self.get_int(f"{group}.min.assignment.interval.ms")
                highest = self.get_int(f"{group}.max.assignment.interval.ms")
                self._effective[name] = str(min(max(self.get_int(name), lowest), highest))
                del self._parsed[name]

    def altered(
        self, *, broker: Mapping[str, str] | None = None, cluster: Mapping[str, str] | None = None
    ) -> BrokerConfig:
        """The configuration as it would be, to be checked: this one stays, and nothing is passed over."""
        copy = BrokerConfig(self.static, listeners=self.listeners, cluster_id=self.cluster_id)
        copy.dynamic_broker = self.dynamic_broker if broker is None else broker
        copy.dynamic_cluster = self.dynamic_cluster if cluster is None else cluster
        copy._effective = copy._overlaid()
        return copy
