"""Which checks are asked on which occasion, and in which order: the first that fails is what the user is told.

DescribeConfigs asks none of them: it shows what is in force.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from broker.config.checks.client_metrics import check_client_metrics_configs
from broker.config.checks.codecs import check_codec
from broker.config.checks.consistency import check_consistency
from broker.config.checks.dynamic import check_dynamic, check_only_at_start, check_stored
from broker.config.checks.groups import check_group_configs
from broker.config.checks.quorum import check_quorum
from broker.config.checks.reconfiguration import check_reconfiguration
from broker.config.checks.topics import check_overrides, check_topic_configs
from broker.config.connections_per_host import CONNECTIONS_PER_HOST, connections_per_host
from broker.config.errors import ConfigError
from protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig


class Occasion(Enum):
    """When settings are looked at."""

    START = auto()
    """A broker starts with what file, environment and command line say, each value being legal by itself."""
    REPLAY = auto()
    """The metadata log says a setting of this broker or of all."""
    ALTER_BROKER = auto()
    """A client alters settings of this broker, or of all."""
    ALTER_BROKER_WITH_ELR = auto()
    """The same, in a cluster with eligible leader replicas (KIP-966): asked by the controller, after the broker."""
    CREATE_TOPIC = auto()
    ALTER_TOPIC = auto()
    ALTER_GROUP = auto()
    ALTER_CLIENT_METRICS = auto()


class Proposal:
    """What is looked at.

    - `config`: what is in force.
    - `wanted`: the settings that the resource is to have, all of them; with ALTER_BROKER_WITH_ELR those that change.
    - `stored`: those that a topic or a broker has already.
    - `per_broker`: of this broker, not of all.
    - `after`: what would be in force then, of a broker.
    """

    __slots__ = ("after", "config", "per_broker", "stored", "wanted")

    def __init__(
        self,
        config: BrokerConfig,
        wanted: Mapping[str, Any],
        *,
        stored: Mapping[str, str] | None = None,
        per_broker: bool = False,
        after: BrokerConfig | None = None,
    ) -> None:
        self.config = config
        self.wanted = wanted
        self.stored = stored or {}
        self.per_broker = per_broker
        self.after = config if after is None else after


def check(occasion: Occasion, proposal: Proposal) -> None:
    """Raises ConfigError where a broker's settings can't be, KafkaError where those of another resource can't."""
    for each in CHECKS[occasion]:
        each(proposal)


def _can_be_altered(proposal: Proposal) -> None:
    check_dynamic(proposal.wanted, per_broker=proposal.per_broker)


def _are_hosts(proposal: Proposal) -> None:
    if CONNECTIONS_PER_HOST in proposal.wanted:
        connections_per_host(proposal.wanted[CONNECTIONS_PER_HOST])


def _are_legal_by_now(proposal: Proposal) -> None:
    for name, text in proposal.wanted.items():
        check_stored(name, text)


def _wait_for_no_start(proposal: Proposal) -> None:
    if proposal.per_broker:
        check_only_at_start(proposal.wanted, proposal.config.dynamic_broker)


def _agree(proposal: Proposal) -> None:
    check_consistency(proposal.after.get, proposal.wanted)


def _find_their_controllers(proposal: Proposal) -> None:
    check_quorum(proposal.config)


def _can_be_gone_over_to(proposal: Proposal) -> None:
    check_reconfiguration(proposal.config, proposal.after)


def _keep_min_insync_replicas(proposal: Proposal) -> None:
    changes = proposal.wanted
    if "min.insync.replicas" not in changes:
        return
    if proposal.per_broker:
        raise KafkaError(
            Error.INVALID_CONFIG, "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
        )
    if changes["min.insync.replicas"] is None:
        raise KafkaError(
            Error.INVALID_CONFIG, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
        )


def _suit_a_new_topic(proposal: Proposal) -> None:
    check_topic_configs(proposal.config, proposal.wanted)


def _suit_a_topic(proposal: Proposal) -> None:
    check_overrides(proposal.config, proposal.wanted)


def _can_be_packed(proposal: Proposal) -> None:
    check_codec(proposal.wanted, proposal.stored)


def _can_be_packed_of_a_topic(proposal: Proposal) -> None:
    try:
        _can_be_packed(proposal)
    except ConfigError as error:
        raise KafkaError(Error.INVALID_CONFIG, str(error)) from None


def _suit_a_group(proposal: Proposal) -> None:
    check_group_configs(proposal.config, proposal.wanted)


def _suit_a_subscription(proposal: Proposal) -> None:
    check_client_metrics_configs(proposal.wanted)


CHECKS: dict[Occasion, tuple[Callable[[Proposal], None], ...]] = {
    Occasion.START: (_agree, _find_their_controllers),
    Occasion.REPLAY: (_can_be_altered, _are_hosts, _are_legal_by_now),
    Occasion.ALTER_BROKER: (
        _can_be_altered,
        _wait_for_no_start,
        _agree,
        _can_be_gone_over_to,
        _can_be_packed,
    ),
    Occasion.ALTER_BROKER_WITH_ELR: (_keep_min_insync_replicas,),
    Occasion.CREATE_TOPIC: (_suit_a_new_topic, _can_be_packed_of_a_topic),
    Occasion.ALTER_TOPIC: (_suit_a_topic, _can_be_packed_of_a_topic),
    Occasion.ALTER_GROUP: (_suit_a_group,),
    Occasion.ALTER_CLIENT_METRICS: (_suit_a_subscription,),
}
