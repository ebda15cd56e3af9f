"""Settings that have to agree with each other: KafkaConfig.validateValues and GroupCoordinatorConfig.

Only those that concern a single node, and of them only those that name something the user has set: what
nobody touched agrees with itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from broker.config.connections_per_host import CONNECTIONS_PER_HOST, connections_per_host
from broker.config.definitions import Value
from broker.config.errors import ConfigError

_MEBIBYTE = 1024 * 1024

_AT_LEAST = "greater than or equal to"
_AT_MOST = "less than or equal to"
_BELOW = "less than"

_RETENTION = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")


def check_consistency(get: Callable[[str], Value], touched: Collection[str]) -> None:
    """Raise ConfigError where a setting in `touched` contradicts another. `get` gives the values in force."""

    def number(name: str) -> float:
        value = get(name)
        assert isinstance(value, int | float)
        return value

    if "node.id" in touched and "broker.id" in touched and get("node.id") != get("broker.id"):
        raise ConfigError("You must set `node.id` to the same value as `broker.id`.", "broker.id")
    for left, relation, right in _relations():
        if (left in touched or right in touched) and not _holds(number(left), relation, number(right)):
            raise ConfigError(f"{left} must be {relation} {right}", left if left in touched else right)
    _check_logs(get, touched)
    _check_connections(get, touched)
    protocols = "group.coordinator.rebalance.protocols"
    if protocols in touched and "classic" not in _strings(get(protocols)):
        raise ConfigError("Disabling the 'classic' protocol is not supported.", protocols)
    assignors = "group.share.assignors"
    if assignors in touched and len(_strings(get(assignors))) != 1:
        found = len(_strings(get(assignors)))
        raise ConfigError(f"{assignors} must contain exactly one assignor, but found {found}", assignors)


def _holds(left: float, relation: str, right: float) -> bool:
    if relation == _AT_LEAST:
        return left >= right
    return left <= right if relation == _AT_MOST else left < right


def _relations() -> Iterator[tuple[str, str, str]]:
    for group in ("group.consumer", "group.share", "group.streams"):
        for what in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms"):
            yield f"{group}.max.{what}", _AT_LEAST, f"{group}.min.{what}"
            yield f"{group}.{what}", _AT_LEAST, f"{group}.min.{what}"
            yield f"{group}.{what}", _AT_MOST, f"{group}.max.{what}"
        yield f"{group}.heartbeat.interval.ms", _BELOW, f"{group}.session.timeout.ms"
    yield "group.streams.num.standby.replicas", _AT_MOST, "group.streams.max.standby.replicas"


def _check_logs(get: Callable[[str], Value], touched: Collection[str]) -> None:
    for name, least in (("log.roll.ms", 1), ("log.roll.jitter.ms", 0)):
        value = get(name) if name in touched else None
        if isinstance(value, int) and value < least:
            raise ConfigError(f"{name} must be greater than or equal to {least}", name)
    for name in _RETENTION:
        if name in touched and get(name) is not None:
            if get(name) == 0:
                raise ConfigError(
                    "log.retention.ms must be unlimited (-1) or, greater than or equal to 1", name
                )
            break
    buffer, threads = "log.cleaner.dedupe.buffer.size", "log.cleaner.threads"
    if buffer in touched or threads in touched:
        size, count = get(buffer), get(threads)
        assert isinstance(size, int)
        assert isinstance(count, int)
        if count < 1:
            raise ConfigError(f"{threads} must be at least 1", threads)  # Kafka divides by it
        if size // count <= _MEBIBYTE:
            raise ConfigError(
                "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
                buffer if buffer in touched else threads,
            )
    cordoned = _strings(get("cordoned.log.dirs")) if "cordoned.log.dirs" in touched else ()
    if "*" in cordoned and len(cordoned) != 1:
        raise ConfigError(
            "When cordoned.log.dirs is set to *, it must not contain other values", "cordoned.log.dirs"
        )
    log_dirs = _strings(get("log.dirs") or get("log.dir"))
    missing = [directory for directory in cordoned if directory not in log_dirs and directory != "*"]
    if missing:
        raise ConfigError(
            "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. "
            f"Missing entries : {', '.join(missing)}",
            "cordoned.log.dirs",
        )


def _check_connections(get: Callable[[str], Value], touched: Collection[str]) -> None:
    queued, largest = "queued.max.request.bytes", "socket.request.max.bytes"
    if queued in touched or largest in touched:
        bytes_queued, bytes_largest = get(queued), get(largest)
        assert isinstance(bytes_queued, int)
        assert isinstance(bytes_largest, int)
        if 0 < bytes_queued < bytes_largest:
            raise ConfigError(
                f"{queued} must be larger or equal to {largest}", queued if queued in touched else largest
            )
    per_ip, overrides = "max.connections.per.ip", CONNECTIONS_PER_HOST
    if overrides in touched:
        connections_per_host(get(overrides))
    if per_ip in touched and get(per_ip) == 0 and not connections_per_host(get(overrides)):
        raise ConfigError(f"{per_ip} can be set to zero only if {overrides} property is set.", per_ip)


def _strings(value: Value) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()
