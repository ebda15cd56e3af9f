"""A broker and a cluster with rules: a rule is in force when the call returns, and each denial is explained."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import barnabas
from barnabas.security import ADMIN, NODE
from protocol.errors import Error
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.wire import Client

ANYBODY = "ANONYMOUS"


def described(bootstrap: str, topic: str = "orders") -> Error:
    """Ask for the topic's metadata, and return its error code."""
    with Client.of(bootstrap) as client:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        return Error(client.ask(request, 8).topics[0].error_code)


DENIED, ALLOWED = Error.TOPIC_AUTHORIZATION_FAILED, Error.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture(scope="module")
def open_broker() -> Iterator[barnabas.Broker]:
    """Start a broker where nobody signs in, and everybody has the rights of ANONYMOUS."""
    with barnabas.Broker(security="plaintext") as broker:
        yield broker


@pytest.fixture
def broker(open_broker: barnabas.Broker) -> Iterator[barnabas.Broker]:
    yield open_broker
    for user in (ANYBODY, "*"):
        try:
            open_broker.revoke(user)
        except LookupError:
            continue


def test_everything_is_denied_until_allowed_and_a_rule_holds_when_the_call_returns(
    broker: barnabas.Broker,
) -> None:
    assert described(broker.bootstrap) is DENIED
    broker.allow(ANYBODY, "describe", topic="orders")
    assert described(broker.bootstrap) is ALLOWED
    assert described(broker.bootstrap, "others") is DENIED
    broker.deny("*", "describe", topic="ord", prefix=True)
    assert described(broker.bootstrap) is DENIED
    broker.allow("*", "describe", topic="ord", prefix=True)
    broker.revoke("*", "describe", topic="ord", prefix=True, denied=True)
    broker.revoke("*", "describe", topic="ord", prefix=True)
    assert described(broker.bootstrap) is ALLOWED
    broker.revoke(ANYBODY, "describe", topic="orders")
    assert described(broker.bootstrap) is DENIED


def test_all_rules_are_taken_back_however_they_were_given(broker: barnabas.Broker) -> None:
    broker.allow(ANYBODY, "all")
    broker.allow(ANYBODY, "describe", topic=["orders", "others"], host="127.0.0.0/8")
    broker.revoke(ANYBODY, "all", topic="*")
    assert described(broker.bootstrap) is ALLOWED
    broker.revoke(ANYBODY)
    assert described(broker.bootstrap) is DENIED
    with pytest.raises(LookupError, match="User:ANONYMOUS has no rules to remove"):
        broker.revoke(ANYBODY)


def test_a_rule_of_a_host_alone_can_be_taken_back(broker: barnabas.Broker) -> None:
    broker.allow(ANYBODY, "describe", topic="orders", host="127.0.0.1")
    broker.allow(ANYBODY, "describe", topic="orders", host="10.0.0.1")
    broker.revoke(ANYBODY, "describe", topic="orders", host="127.0.0.1")
    assert described(broker.bootstrap) is DENIED
    broker.revoke(ANYBODY, "describe", topic="orders")
    with pytest.raises(LookupError):
        broker.revoke(ANYBODY)


def test_a_rule_that_cannot_be_taken_back_is_reported_with_the_existing_ones(broker: barnabas.Broker) -> None:
    broker.allow(ANYBODY, "all", topic="orders")
    with pytest.raises(LookupError) as refused:
        broker.revoke(ANYBODY, "write", topic="orders")
    assert 'its rules are allow("ANONYMOUS", "all", topic="orders"). deny(...) wins over what' in str(
        refused.value
    )


def test_rules_that_kafka_refuses_are_refused(broker: barnabas.Broker) -> None:
    with pytest.raises(ValueError, match="CIDR"):
        broker.allow(ANYBODY, "read", topic="orders", host="10.0.0.0/99")


def test_more_rules_than_one_question_has_room_for_are_made(broker: barnabas.Broker) -> None:
    names = [f"{'n' * 240}-{number}" for number in range(250)]
    broker.allow(ANYBODY, "describe", topic=names)
    assert described(broker.bootstrap, names[-1]) is ALLOWED
    broker.revoke(ANYBODY, "describe", topic=names)
    assert described(broker.bootstrap, names[0]) is DENIED


def test_a_denial_is_explained_and_its_line_lets_it_through(broker: barnabas.Broker) -> None:
    assert described(broker.bootstrap) is DENIED
    denial = broker.denials[-1]
    assert denial[:8] == (
        "Metadata",
        "User:ANONYMOUS",
        "127.0.0.1",
        "PLAINTEXT",
        "describe",
        "topic",
        "orders",
        "DefaultDeny",
    )
    assert broker.explain_denial() == str(denial)
    eval(f"broker.{denial.line}", {"broker": broker})
    assert described(broker.bootstrap) is ALLOWED
    broker.deny("*", "all", topic="orders")
    assert described(broker.bootstrap) is DENIED
    eval(f"broker.{broker.denials[-1].line}", {"broker": broker})
    assert described(broker.bootstrap) is ALLOWED


@pytest.mark.limit("broker.process.security_questions.MOST_DENIALS")
def test_denials_are_kept_by_the_hundred(broker: barnabas.Broker) -> None:
    with Client.of(broker.bootstrap) as client:
        for number in range(150):
            topics = [MetadataRequestTopic(name=f"{'ö' * 240}-{number}")]
            client.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 8)
    kept = broker.denials
    assert [each.resource.rpartition("-")[2] for each in kept] == [str(each) for each in range(50, 150)]


def test_without_an_authorizer_rules_are_refused() -> None:
    with barnabas.Broker() as broker:
        with pytest.raises(ValueError, match="no authorizer"):
            broker.allow("alice", "all")
        assert broker.client_config() == {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "PLAINTEXT",
        }


def test_rules_are_for_users_that_there_are(broker: barnabas.Broker) -> None:
    for rule in (broker.allow, broker.deny):
        with pytest.raises(ValueError, match=r"'alcie' is no user of this broker; its users=.* 'User:alcie'"):
            rule("alcie", "read", topic="orders")
    for user in ("*", "ANONYMOUS", "User:alcie"):
        broker.allow(user, "read", topic="misspelled")
        broker.revoke(user, "read", topic="misspelled")


def test_users_sign_in_again_after_a_crash_and_rules_hold(tmp_path: Path) -> None:
    pytest.importorskip("confluent_kafka")
    from confluent_kafka.admin import AdminClient

    with barnabas.Broker(security="sasl_plaintext", users=["alice"], data=tmp_path / "data") as broker:
        broker.allow("alice", "create", cluster=True)
        config = broker.client_config("alice", mechanism="SCRAM-SHA-512")
        broker.kill()
        broker.start()
        assert broker.client_config("alice", mechanism="scram-sha-512") == config
        assert AdminClient({**config, "log_level": 0}).list_topics(timeout=60).brokers
        password = config["sasl.password"]
        arguments = Path(f"/proc/{broker.pid}/cmdline")
        if arguments.exists():
            assert password not in arguments.read_text()
        assert password not in broker.log


def test_the_nodes_of_a_cluster_follow_a_rule_when_the_call_returns() -> None:
    with barnabas.Cluster(brokers=2, security="plaintext") as cluster:
        for node in cluster:
            assert described(node.bootstrap) is DENIED
        cluster.allow(ANYBODY, "describe", topic="orders")
        assert [described(node.bootstrap) for node in cluster] == [ALLOWED, ALLOWED]
        cluster[2].revoke(ANYBODY, "describe", topic="orders")
        assert [described(node.bootstrap) for node in cluster] == [DENIED, DENIED]
        assert [each.node for each in cluster.denials] == ["broker 1", "broker 2"] * 2
        assert "was denied at broker 2:" in cluster.explain_denial()
        assert len(cluster[1].denials) == 2
        # the call doesn't wait for a broker that can't be reached; that one learns the rule later
        cluster[2].isolate()
        cluster.allow(ANYBODY, "describe", topic="orders")
        assert described(cluster[1].bootstrap) is ALLOWED


def test_tokens_are_of_a_broker_that_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="a SSL listener has no sign-in"):
        barnabas.Broker(security="ssl", tokens=True)
    with pytest.raises(ValueError, match="need security="):
        barnabas.Broker(tokens=True)
    for broker in (barnabas.Broker(), barnabas.Broker(security="sasl_plaintext")):
        with pytest.raises(ValueError, match="tokens=True"):
            broker.token("alice")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match=r"joserfc.*pip install 'barnabas\[security\]'"):
        barnabas.Broker(security="sasl_plaintext", tokens=True)


@pytest.mark.parametrize(
    ("security", "users", "message"),
    [
        ("tls", None, "security='tls': it can be plaintext, ssl, sasl_plaintext, sasl_ssl"),
        ("plaintext", {"alice": "x"}, "has no users"),
        ("sasl_plaintext", {"al ice": "x"}, "a user's name"),
        ("sasl_plaintext", {"": "x"}, "a user's name"),
        ("sasl_plaintext", {ADMIN: "x"}, "the broker reserves"),
        ("sasl_plaintext", {NODE: "x"}, "the broker reserves"),
        ("sasl_plaintext", {"alice": ""}, "the password of alice"),
        ("sasl_plaintext", {"alice": "a\nb"}, "the password of alice"),
        (None, {"alice": "x"}, "need security="),
    ],
)
def test_nonsense_is_refused_before_a_start(
    security: str | None, users: dict[str, str] | None, message: str
) -> None:
    for kind in (barnabas.Broker, barnabas.Cluster):
        with pytest.raises(ValueError, match=message):
            kind(security=security, users=users)


@pytest.mark.parametrize("name", ["listeners", "super.users", "authorizer.class.name"])
def test_only_security_sets_its_settings(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: security='sasl_plaintext' sets that itself"):
        barnabas.Broker(security="sasl_plaintext", config={name: "x"})


def test_an_unknown_client_config_is_refused_with_the_known_ones() -> None:
    with barnabas.Broker(security="sasl_plaintext", users={"alice": "secret"}) as broker:
        for arguments, message in (
            ({"user": "bob"}, "no user 'bob'; there are 'alice', and without a name 'barnabas-admin'"),
            ({"library": "sarama"}, "library='sarama': it can be confluent-kafka, kafka-python"),
            ({"mechanism": "GSSAPI"}, "it can be PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
            ({"wrong": "everything"}, "it can be password, ca"),
            ({"wrong": "ca"}, "clients of a SASL_PLAINTEXT listener have nothing like that"),
        ):
            with pytest.raises(ValueError, match=message):
                broker.client_config(**arguments)  # type: ignore[call-overload]
        with pytest.raises(ValueError, match="no certificate"):
            broker.rotate_certificates()
    with pytest.raises(ValueError, match="isn't encrypted"):
        barnabas.Broker().rotate_certificates()
