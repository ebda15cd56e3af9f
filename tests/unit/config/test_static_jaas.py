"""JAAS files that the environment names, in the way that the apache/kafka image does it."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.config.definitions import UsageError
from broker.config.given_settings import Setting
from broker.config.static_jaas import static_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OF_TWO = {
    "listeners": "SASL_SSL://:1,INSIDE://:2,PLAINTEXT://:3",
    "listener.security.protocol.map": "INSIDE:SASL_SSL",
}


def found(folder: Path, text: str, **more: str) -> dict[str, str]:
    file = folder / "jaas.conf"
    file.write_text(text)
    below = {name: Setting(value, "") for name, value in {**OF_TWO, **more}.items()}
    options = f"-Xmx1g -Djava.security.auth.login.config={file}"
    return {name: setting.value for name, setting in static_jaas({"KAFKA_OPTS": options}, below).items()}


def test_an_entry_applies_to_all_listeners_and_a_listeners_own_goes_before_it(tmp_path: Path) -> None:
    text = f"""
    // who may come in
    KafkaServer {{
        {PLAIN} required
        user_alice="a {{ \\"; }}"  /* hers; */
        user_bob = "b";
        {SCRAM} required username="u" password="p";
        com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true;
    }};
    "inside.KafkaServer" {{ {PLAIN} required user_carol="c"; }};
    Client {{ }};
    """
    assert found(tmp_path, text) == {
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{PLAIN} required user_alice="a {{ \\"; }}" user_bob="b";',
        "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": f'{SCRAM} required username="u" password="p";',
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f'{SCRAM} required username="u" password="p";',
        "listener.name.inside.plain.sasl.jaas.config": f'{PLAIN} required user_carol="c";',
    }


@pytest.mark.parametrize("password", ["x = y", " = ", "=", "a  b", "{ ; }", "// no comment"])
def test_a_password_is_as_it_stands(tmp_path: Path, password: str) -> None:
    made = found(tmp_path, f'KafkaServer {{ {PLAIN} required user_a = "{password}" user_b="b"; }};')
    expected = f'{PLAIN} required user_a="{password}" user_b="b";'
    assert made["listener.name.inside.plain.sasl.jaas.config"] == expected


def test_an_existing_setting_is_left_as_it_is(tmp_path: Path) -> None:
    own = "listener.name.sasl_ssl.plain.sasl.jaas.config"
    made = found(tmp_path, f'KafkaServer {{ {PLAIN} required user_a="a"; }};', **{own: "mine"})
    assert [*made] == ["listener.name.inside.plain.sasl.jaas.config"]


@pytest.mark.parametrize(
    "text",
    [
        "KafkaServer",
        "KafkaServer {",
        "KafkaServer { x required; }",
        "KafkaServer { x required };",
        "KafkaServer { { x required; }; };",
        "x required;",
    ],
)
def test_an_invalid_file_is_refused_without_its_contents(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match=r"jaas.conf isn't a JAAS file: NAME \{ MODULE") as refused:
        found(tmp_path, text.replace("x required", 'x required user_a="secret"'))
    assert "secret" not in str(refused.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    options = "-Djava.security.auth.login.config=file:/nowhere/jaas.conf"
    with pytest.raises(UsageError, match=r"KAFKA_OPTS: /nowhere/jaas\.conf: No such file"):
        static_jaas({"KAFKA_OPTS": options}, {})


@pytest.mark.parametrize("options", ["", "-Xmx1g", "'", "-Djava.security.auth.login.configs=x"])
def test_without_a_named_file_there_is_no_setting(options: str) -> None:
    assert static_jaas({"KAFKA_OPTS": options}, {}) == {}
