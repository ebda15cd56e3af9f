"""From settings as given to a configuration: precedence, warnings, refusals, checks."""

from __future__ import annotations

import pytest

from broker.config.assembly import assemble, settings_of
from broker.config.broker_config import AT_MOST_ONE, DEFAULTS, BrokerConfig
from broker.config.definitions import UsageError
from broker.config.given_settings import Layer, Setting, layered


def config(**values: str) -> BrokerConfig:
    """Assemble a configuration from settings. Their names have `_` for `.`, since they are Python's names here."""
    return assemble(
        [settings_of({name.replace("_", "."): value for name, value in values.items()}, "file:1")]
    )


def refusal(**values: str) -> str:
    with pytest.raises(UsageError) as raised:
        config(**values)
    assert raised.value.exit_status == 2
    return str(raised.value)


def layer(origin: str, **values: str) -> Layer:
    return settings_of({name.replace("_", "."): value for name, value in values.items()}, origin)


SECURITY, HANDLER = "org.apache.kafka.common.security.", "sasl.server.callback.handler.class"


# --- layers -------------------------------------------------------------------------------------------------


def test_the_last_layer_is_the_strongest() -> None:
    merged = layered([layer("file", num_partitions="1", a="x"), layer("-o", num_partitions="2")])
    assert merged == {"num.partitions": Setting("2", "-o"), "a": Setting("x", "file")}


@pytest.mark.parametrize(
    ("below", "above"),
    [
        ("log.retention.ms", "log.retention.hours"),
        ("log.retention.minutes", "log.retention.ms"),
        ("log.roll.ms", "log.roll.hours"),
        ("log.dirs", "log.dir"),
        ("broker.id", "node.id"),
    ],
)
def test_a_setting_takes_its_other_names_below_with_it(below: str, above: str) -> None:
    merged = layered([settings_of({below: "7"}, "file"), settings_of({above: "8"}, "-o")])
    assert merged == {above: Setting("8", "-o")}


def test_other_names_in_one_layer_stay_side_by_side() -> None:
    both = settings_of({"log.retention.ms": "1", "log.retention.hours": "2"})
    assert layered([{}, both]) == both


# --- defaults -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(DEFAULTS))
def test_one_node_has_its_own_default_where_kafkas_does_not_fit(name: str) -> None:
    value = config().get(name)
    shown = ",".join(value) if isinstance(value, tuple) else str(value)
    assert shown == DEFAULTS[name].value
    assert DEFAULTS[name].reason


def test_without_any_setting_the_broker_listens_on_its_own_machine_only() -> None:
    (listener,) = config().listeners
    assert (listener.host, listener.port, listener.advertised) == ("127.0.0.1", 9092, ("127.0.0.1", 9092))


def test_an_advertised_address_alone_brings_kafkas_listener_with_it() -> None:
    (listener,) = config(advertised_listeners="PLAINTEXT://outside:19092").listeners
    assert (listener.host, listener.port, listener.advertised) == ("", 9092, ("outside", 19092))


def test_broker_id_and_node_id_stand_for_each_other() -> None:
    assert config(broker_id="7").node_id == 7
    assert config(node_id="8").get_int("broker.id") == 8
    assert config().get_int("broker.id") == 1


# --- warnings -----------------------------------------------------------------------------------------------


def test_a_configuration_that_is_right_says_nothing() -> None:
    assert config(num_partitions="3").warnings == []


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("num.partitons", "num.partitions"),
        ("auto.create.topic.enable", "auto.create.topics.enable"),
        ("retention.ms", "log.retention.ms"),
        ("max.message.bytes", "message.max.bytes"),
    ],
)
def test_the_warning_about_an_unknown_name_suggests_a_similar_setting(name: str, suggestion: str) -> None:
    found = assemble([settings_of({name: "1"}, "server.properties:3")])
    assert found.warnings == [
        f"server.properties:3: {name} isn't a setting of a Kafka broker and is ignored; did you mean {suggestion}?"
    ]
    assert found.text_given(name) == "1"


def test_the_warning_about_a_name_that_resembles_nothing_has_no_suggestion() -> None:
    assert config(confluent_whatever="1").warnings == [
        "file:1: confluent.whatever isn't a setting of a Kafka broker and is ignored"
    ]


def test_a_variable_gets_a_warning_only_if_it_is_nearly_a_setting() -> None:
    variables = {
        "home": Setting("/opt/kafka", "KAFKA_HOME"),
        "num.partitons": Setting("3", "KAFKA_NUM_PARTITONS"),
    }
    found = assemble([variables])
    assert [warning.partition(":")[0] for warning in found.warnings] == ["KAFKA_NUM_PARTITONS"]
    assert found.text_given("home") is None


@pytest.mark.parametrize(
    "name",
    [
        "zookeeper.connect",
        "zookeeper.session.timeout.ms",
        "inter.broker.protocol.version",
        "log.message.format.version",
    ],
)
def test_a_setting_that_kafka_dropped_is_reported_as_obsolete(name: str) -> None:
    (warning,) = assemble([settings_of({name: "x"}, "file:9")]).warnings
    assert warning.startswith(f"file:9: {name} is obsolete and ignored: ")


def test_a_listeners_own_setting_is_known_by_the_general_one() -> None:
    known, unknown = "listener.name.plaintext.max.connections", "listener.name.plaintext.max.conections"
    assert assemble([settings_of({known: "5"})]).warnings == []
    assert len(assemble([settings_of({unknown: "5"})]).warnings) == 1


@pytest.mark.parametrize("name", list(AT_MOST_ONE))
def test_a_setting_for_three_brokers_is_taken_as_one_with_a_warning(name: str) -> None:
    found = assemble([settings_of({name: "3"}, "file:4")])
    assert found.get(name) == 1
    assert found.warnings == [f"file:4: {name}=3 is taken as 1: on one node {AT_MOST_ONE[name]}"]


def test_an_ignored_java_class_is_reported() -> None:
    (warning,) = config(create_topic_policy_class_name="com.example.Policy").warnings
    assert "names a Java class, which isn't loaded" in warning


def test_a_broker_only_file_is_served_by_a_node_that_is_both() -> None:
    (warning,) = config(process_roles="broker").warnings
    assert "its own controller all the same" in warning


def test_a_cluster_id_is_kept_and_a_wrong_one_reported() -> None:
    good = assemble([], cluster_id=Setting("5L6g3nShT-eMCtK--X86sw", "CLUSTER_ID"))
    assert (good.cluster_id, good.warnings) == ("5L6g3nShT-eMCtK--X86sw", [])
    bad = assemble([], cluster_id=Setting("production", "CLUSTER_ID"))
    assert bad.cluster_id is None
    assert bad.warnings == ["CLUSTER_ID: production is no cluster id (22 characters of base64): ignored"]


# --- refusals -----------------------------------------------------------------------------------------------


def test_a_bad_value_is_reported_with_its_place() -> None:
    expected = "file:1: Invalid value x for configuration num.partitions: Not a number of type INT"
    assert refusal(num_partitions="x") == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("authorizer.class.name", "com.example.Authorizer"),
        ("remote.log.storage.system.enable", "TRUE"),
        ("config.providers", "file"),
        ("principal.builder.class", "com.example.Builder"),
        ("listener.name.sasl_ssl.principal.builder.class", "com.example.Builder"),
        ("ssl.engine.factory.class", "com.example.Engines"),
        ("listener.name.ssl.ssl.engine.factory.class", "com.example.Engines"),
        (f"listener.name.a.plain.{HANDLER}", "com.example.Handler"),
        (f"listener.name.a.scram-sha-256.{HANDLER}", "com.example.Handler"),
        (f"listener.name.a.scram-sha-512.{HANDLER}", "com.example.Handler"),
    ],
)
def test_a_setting_that_users_would_rely_on_in_vain_is_refused(name: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"^file:2: {name}=.* is refused: "):
        assemble([settings_of({name: value}, "file:2")])


@pytest.mark.parametrize(
    "values",
    [
        {"authorizer.class.name": ""},
        {"remote.log.storage.system.enable": "false"},
        {"process.roles": "controller,broker"},
        {"config.providers": ""},
        {"principal.builder.class": f"{SECURITY}authenticator.DefaultKafkaPrincipalBuilder"},
        {"listener.name.ssl.ssl.engine.factory.class": f"{SECURITY}ssl.DefaultSslEngineFactory"},
        {f"listener.name.a.plain.{HANDLER}": f"{SECURITY}plain.internals.PlainServerCallbackHandler"},
        {f"listener.name.a.scram-sha-256.{HANDLER}": ""},
    ],
)
def test_a_setting_that_asks_for_nothing_special_is_not_refused(values: dict[str, str]) -> None:
    assert assemble([settings_of(values)]).warnings == []


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"node.id": "1", "broker.id": "2"}, "You must set `node.id` to the same value as `broker.id`."),
        ({"log.roll.ms": "0"}, "log.roll.ms must be greater than or equal to 1"),
        ({"log.roll.jitter.ms": "-1"}, "log.roll.jitter.ms must be greater than or equal to 0"),
        ({"log.retention.ms": "0"}, "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"),
        (
            {"log.retention.hours": "0"},
            "log.retention.hours: log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
        ),
        ({"log.cleaner.threads": "200"}, None),
        (
            {"queued.max.request.bytes": "5"},
            "queued.max.request.bytes must be larger or equal to socket.request.max.bytes",
        ),
        ({"max.connections.per.ip": "0"}, None),
        ({"max.connections.per.ip.overrides": "nonsense"}, None),
        ({"cordoned.log.dirs": "/nowhere"}, None),
        ({"cordoned.log.dirs": "*,/a"}, None),
        (
            {"group.coordinator.rebalance.protocols": "consumer"},
            "Disabling the 'classic' protocol is not supported.",
        ),
        (
            {"group.streams.assignors": "sticky,mine"},
            "Invalid value mine for configuration group.streams.assignors: Class cannot be found",
        ),
        (
            {"group.streams.task.offset.interval.ms": "14999"},
            "group.streams.task.offset.interval.ms must be greater than or equal to "
            "group.streams.min.task.offset.interval.ms",
        ),
        (
            {"group.streams.num.warmup.replicas": "21"},
            "group.streams.num.warmup.replicas must be less than or equal to group.streams.max.warmup.replicas",
        ),
        (
            {"group.streams.rack.aware.assignment.tags": "a, b,a"},
            "group.streams.rack.aware.assignment.tags must not contain duplicate tag keys.",
        ),
        (
            {"group.share.assignors": "a,b"},
            "group.share.assignors must contain exactly one assignor, but found 2",
        ),
        (
            {"group.consumer.session.timeout.ms": "1000"},
            "group.consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            {
                "group.streams.heartbeat.interval.ms": "45000",
                "group.streams.max.heartbeat.interval.ms": "50000",
            },
            "group.streams.heartbeat.interval.ms must be less than group.streams.session.timeout.ms",
        ),
        (
            {"group.streams.num.standby.replicas": "3"},
            "group.streams.num.standby.replicas must be less than or equal to group.streams.max.standby.replicas",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(values: dict[str, str], message: str | None) -> None:
    with pytest.raises(UsageError) as raised:
        assemble([settings_of(values, "file:5")])
    text = str(raised.value)
    assert text.startswith("file:5: ")
    if message is not None:
        assert text.endswith(message)


@pytest.mark.parametrize(
    "values",
    [
        {"log.retention.ms": "-1"},
        {"log.retention.hours": "-5"},
        {"log.retention.hours": "0", "log.retention.ms": "5"},
        {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:5, ::1:6"},
        {"cordoned.log.dirs": "*"},
        {"cordoned.log.dirs": "/a", "log.dirs": "/a,/b"},
        {"queued.max.request.bytes": "-1"},
        {"node.id": "7", "broker.id": "7"},
    ],
)
def test_settings_that_agree_pass(values: dict[str, str]) -> None:
    assemble([settings_of(values)])


def test_an_impossible_listener_is_reported_with_its_place() -> None:
    assert refusal(listeners="PLAINTEXT://h:1,OTHER://h:2").startswith(
        "file:1: listeners: No security protocol defined for listener OTHER"
    )


def test_a_refusal_is_one_line() -> None:
    assert "\n" not in refusal(num_partitions="1\n2")


# --- between brokers, and every interface -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            {"security_inter_broker_protocol": "SSL"},
            "file:1: security.inter.broker.protocol: inter.broker.listener.name must be a listener name defined in "
            "advertised.listeners. The valid options based on currently configured listeners are PLAINTEXT",
        ),
        (
            {"inter_broker_listener_name": "SSL"},
            "file:1: inter.broker.listener.name must be a listener name defined in advertised.listeners. "
            "The valid options based on currently configured listeners are PLAINTEXT",
        ),
        (
            {"inter_broker_listener_name": "nobody"},
            "file:1: Listener with name NOBODY defined in inter.broker.listener.name not found in "
            "listener.security.protocol.map.",
        ),
        (
            {"inter_broker_listener_name": "PLAINTEXT", "security_inter_broker_protocol": "PLAINTEXT"},
            "file:1: Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.",
        ),
    ],
)
def test_the_listener_between_brokers_has_to_be_there(values: dict[str, str], expected: str) -> None:
    assert refusal(**values) == expected


@pytest.mark.parametrize("name", ["inter_broker_listener_name", "security_inter_broker_protocol"])
def test_the_listener_between_brokers_may_be_an_existing_one(name: str) -> None:
    assert config(**{name: "PLAINTEXT"}).warnings == []


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]"])
def test_a_listener_on_every_interface_reports_the_address_that_clients_get(host: str) -> None:
    made = assemble(
        [settings_of({"listeners": f"PLAINTEXT://{host}:9092"}, "-o")], host_name=lambda: "my-machine"
    )
    [warning] = made.warnings
    assert "clients are told to connect to my-machine" in warning
    assert warning.startswith("-o: listener PLAINTEXT is on every interface")
    assert warning.endswith("advertised.listeners=PLAINTEXT://HOST:9092")


@pytest.mark.parametrize(
    "values",
    [
        {"listeners": "PLAINTEXT://127.0.0.1:9092"},
        {"listeners": "PLAINTEXT://0.0.0.0:9092", "advertised_listeners": "PLAINTEXT://here:9092"},
    ],
)
def test_a_listener_with_an_address_of_its_own_needs_no_word(values: dict[str, str]) -> None:
    assert config(**values).warnings == []


def test_members_of_a_group_that_are_started_together_have_a_moment_to_come() -> None:
    # With a delay of 0, a member that comes 50 ms later waits 3 s for the first one's heartbeat.
    delay_ms = config().get_int("group.initial.rebalance.delay.ms")
    assert 50 < delay_ms < 200
