"""How the parts of a running broker react to changed settings: threads, connections, retention, reporters, classes."""

from __future__ import annotations

from ..config_requests import (
    APPEND,
    BROKER,
    DELETE,
    NEEDS,
    SET,
    SUBTRACT,
    broker_name,
    change,
    changed,
    described,
    resource,
    until_set,
)
from ..play import Play, script

_THREADS = (
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
)

_DEFAULT_BUILDER = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"


@script(needs=NEEDS)
def settings(play: Play) -> None:
    name = broker_name(play)

    def tried(*configs: tuple[str, int, str | None], both: bool = True) -> None:
        case = ", ".join(f"{key} {operation} {value!r}" for key, operation, value in configs)
        for place in (name, "") if both else (name,):
            asked = changed(change(BROKER, place, *configs), only=True)
            play.ask(f"{case} of {place or 'all'}", "IncrementalAlterConfigs", 1, asked)

    for threads in _THREADS:
        for value in ("0", "1", " 5 ", "17", "2147483647"):
            tried((threads, SET, value))
    tried(("listener.name.plaintext.num.network.threads", SET, "7"))
    tried(("listener.name.plaintext.num.network.threads", SET, "6"))
    tried(("listener.name.nobody.num.network.threads", SET, "7"))
    for prefix in ("", "listener.name.plaintext.", "listener.name.PLAINTEXT.", "listener.name.nobody."):
        for setting in ("max.connections", "max.connection.creation.rate"):
            for value in ("0", "-1", "1", "x"):
                tried((f"{prefix}{setting}", SET, value))
    tried(("max.connections", SET, "0"), ("listener.name.plaintext.max.connections", SET, "5"))
    tried(("max.connections", SET, "5"), ("listener.name.plaintext.sasl.login.class", SET, "x"), both=False)
    for listener in ("plaintext", "nobody", "plaintext.plain"):
        for setting, value in (
            ("sasl.login.class", "x"),
            ("sasl.login.class", "org.apache.kafka.common.security.kerberos.KerberosLogin"),
            ("num.partitions", "x"),
            ("num.partitions", "0"),
            ("num.partitions", "5"),
            ("no.such", "x"),
        ):
            tried((f"listener.name.{listener}.{setting}", SET, value), both=False)
    tried(("max.connections", SET, "5"), ("listener.name.plaintext.num.partitions", SET, "5"), both=False)
    for value in ("-2", "-1", "0", "604800000", "604800001"):
        tried(("log.local.retention.ms", SET, value))
        tried(("log.local.retention.bytes", SET, value))
    tried(("log.local.retention.ms", SET, "-1"), ("log.retention.ms", SET, "-1"))
    tried(("log.local.retention.ms", SET, "-1"), ("log.retention.ms", SET, "-2"))
    tried(("log.local.retention.ms", SET, "6"), ("log.retention.ms", SET, "5"))
    tried(("log.local.retention.bytes", SET, "5"), ("log.retention.bytes", SET, "5"))
    tried(("log.local.retention.bytes", SET, "6"), ("log.retention.bytes", SET, "5"))
    tried(("log.local.retention.bytes", SET, "-1"), ("log.retention.bytes", SET, "5"))
    for value in (
        "",
        "x",
        "org.apache.kafka.common.metrics.JmxReporter",
        " org.apache.kafka.common.metrics.JmxReporter , org.apache.kafka.tools.PushHttpMetricsReporter ",
        "org.apache.kafka.common.metrics.JmxReporter,x",
        "org.apache.kafka.common.telemetry.internals.ClientTelemetryReporter",
        _DEFAULT_BUILDER,
        ",",
    ):
        for operation in (SET, APPEND, SUBTRACT):
            tried(("metric.reporters", operation, value))
    for setting in ("principal.builder.class", "ssl.engine.factory.class"):
        for value in ("", "x", " "):
            tried((setting, SET, value))
            tried((f"listener.name.plaintext.{setting}", SET, value))
    tried(("principal.builder.class", SET, f" {_DEFAULT_BUILDER} "))
    factory = "org.apache.kafka.common.security.ssl.DefaultSslEngineFactory"
    tried(("ssl.engine.factory.class", SET, factory))
    for setting in (
        "log.cleanup.policy",
        "sasl.enabled.mechanisms",
        "sasl.kerberos.principal.to.local.rules",
        "ssl.enabled.protocols",
    ):
        for value in (",", ",,", "", "delete,", ",delete"):
            for operation in (APPEND, SUBTRACT):
                tried((setting, operation, value))


@script(needs=NEEDS, properties="second")
def in_steps(play: Play) -> None:
    name = broker_name(play)

    def altered(case: str, place: str, *configs: tuple[str, int, str | None]) -> None:
        play.ask(case, "IncrementalAlterConfigs", 1, changed(change(BROKER, place, *configs)))

    def known(key: str, value: str) -> None:
        until_set(play, BROKER, name, key, value)

    altered("twice the threads", name, ("num.network.threads", SET, "6"))
    known("num.network.threads", "6")
    altered("four times the threads", name, ("num.network.threads", SET, "12"))
    known("num.network.threads", "12")
    altered("back at once", name, ("num.network.threads", DELETE, None))
    altered("others' settings beside it", name, ("log.retention.ms", SET, "5000"))
    known("log.retention.ms", "5000")
    altered("local retention above", name, ("log.local.retention.ms", SET, "5001"))
    altered("local retention", name, ("log.local.retention.ms", SET, "4000"))
    known("log.local.retention.ms", "4000")
    altered("retention below the local one", name, ("log.retention.ms", SET, "3000"))
    altered("retention below the local one, for all", "", ("log.retention.ms", SET, "3000"))
    altered("half the threads", name, ("num.network.threads", SET, "6"))
    known("num.network.threads", "6")
    altered("and the rest", name, ("num.network.threads", DELETE, None))
    known("num.network.threads", "3")
    altered("for one listener", name, ("listener.name.plaintext.num.network.threads", SET, "6"))
    until_set(play, BROKER, name, "listener.name.plaintext.num.network.threads", "6")
    altered("four times, for one listener", name, ("listener.name.plaintext.num.network.threads", SET, "12"))
    altered("for all listeners beside it", name, ("num.network.threads", SET, "12"))
    known("num.network.threads", "12")
    altered("for all brokers", "", ("max.connections", SET, "500"))
    known("max.connections", "500")
    altered("nobody of one listener", name, ("listener.name.plaintext.max.connections", SET, "0"))
    altered("nobody for all brokers", "", ("max.connections", SET, "0"))
    # Restore everything for later scripts on the same broker. A listener's threads can only be halved.
    taken = ("log.retention.ms", "log.local.retention.ms", "listener.name.plaintext.num.network.threads")
    altered("taken away at once", name, ("num.network.threads", DELETE, None))
    altered("taken away", name, *((key, DELETE, None) for key in taken), ("num.network.threads", SET, "6"))
    known("num.network.threads", "6")
    altered("taken away at last", name, ("num.network.threads", DELETE, None))
    for_all = ("max.connections", "log.retention.ms")
    altered("taken away for all", "", *((key, DELETE, None) for key in for_all))
    known("num.network.threads", "3")
    until_set(play, BROKER, name, "max.connections", str(2**31 - 1))
    left = described(resource(BROKER, name, *for_all, *taken, "num.network.threads"), resource(BROKER, ""))
    play.ask("what is left", "DescribeConfigs", 4, left)
