"""JAAS files, which the apache/kafka image gets through `KAFKA_OPTS=-Djava.security.auth.login.config=FILE`.

    KafkaServer {
      org.apache.kafka.common.security.plain.PlainLoginModule required
      user_alice="alice-secret";
    };

A listener's own entry, `sasl_ssl.KafkaServer`, takes precedence over the general one, and a setting
`…sasl.jaas.config` over both. Source: Kafka's `JaasContext`, Java's `ConfigFile`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping

from broker.config.broker_config import JAAS
from broker.config.broker_definitions import listener_prefix
from broker.config.definitions import UsageError
from broker.config.given_settings import Layer, Setting
from broker.config.listeners import SASL
from broker.security import oauthbearer, sasl

OPTIONS = "KAFKA_OPTS"
_PROPERTY = "-Djava.security.auth.login.config="
_ALL = "KafkaServer"
_MODULES = {
    sasl.PLAIN_MODULE: (sasl.PLAIN,),
    sasl.SCRAM_MODULE: (*sasl.SCRAM,),
    oauthbearer.MODULE: (sasl.OAUTHBEARER,),
}
"""By login module: its mechanisms."""
_TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\]|\\.)*"|[{};=]|[^\s{};="]+', re.DOTALL)
_COMMENTS = ("//", "/*")
LARGEST_FILE = 1024 * 1024


def static_jaas(environ: Mapping[str, str], below: Layer) -> Layer:
    """Return the settings in the file that the environment names, for SASL listeners that don't have these
    settings themselves. Raises UsageError, without any part of the file."""
    path = _file(environ.get(OPTIONS, ""))
    if path is None:
        return {}
    contexts = _contexts(path)
    found: Layer = {}
    for listener in _sasl_listeners(below):
        modules = contexts.get(f"{listener.lower()}.{_ALL}", contexts.get(_ALL, []))
        for line in modules:
            for mechanism in _MODULES.get(line.split(" ", 1)[0], ()):
                name = f"{listener_prefix(listener)}{mechanism.lower()}.{JAAS}"
                if name not in below and name not in found:
                    found[name] = Setting(line, path)
    return found


def _file(options: str) -> str | None:
    try:
        words = shlex.split(options)
    except ValueError:
        return None
    paths = [word.removeprefix(_PROPERTY) for word in words if word.startswith(_PROPERTY)]
    return paths[-1].removeprefix("file:") if paths else None


def _sasl_listeners(settings: Layer) -> Iterator[str]:
    """Their names, as written."""
    protocols: dict[str, str] = {}
    for entry in _value(settings, "listener.security.protocol.map").split(","):
        name, _, protocol = entry.partition(":")
        protocols[name.strip().upper()] = protocol.strip().upper()
    for entry in _value(settings, "listeners").split(","):
        name = entry.partition("://")[0].strip()
        if protocols.get(name.upper(), name.upper()) in SASL:
            yield name


def _value(settings: Layer, name: str) -> str:
    found = settings.get(name)
    return "" if found is None else found.value


def _contexts(path: str) -> dict[str, list[str]]:
    """Return the lines of each entry's modules, by name, in the form of `sasl.jaas.config`."""
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"{OPTIONS}: {path}: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > LARGEST_FILE:
        raise UsageError(f"{OPTIONS}: {path} is larger than {LARGEST_FILE} bytes")
    tokens = [
        each for each in _TOKEN.findall(data.decode("utf-8", "replace")) if not each.startswith(_COMMENTS)
    ]
    return _parsed(tokens, path)


def _parsed(tokens: list[str], path: str) -> dict[str, list[str]]:
    contexts: dict[str, list[str]] = {}
    place = 0
    while place < len(tokens):
        if tokens[place + 1 : place + 2] != ["{"]:
            raise _refused(path)
        name = tokens[place].strip('"')
        place += 2
        modules: list[str] = []
        line: list[str] = []
        while place < len(tokens) and tokens[place] != "}":
            word = tokens[place]
            place += 1
            if word == "{":
                raise _refused(path)
            if word == ";":
                modules.append(_line(line))
                line = []
            else:
                line.append(word)
        if line or tokens[place : place + 2] != ["}", ";"]:
            raise _refused(path)
        place += 2
        contexts[name] = modules
    return contexts


def _line(tokens: list[str]) -> str:
    text = ""
    previous = "="
    for token in tokens:
        text += token if "=" in (token, previous) else f" {token}"
        previous = token
    return f"{text};"


def _refused(path: str) -> UsageError:
    return UsageError(
        f'{OPTIONS}: {path} isn\'t a JAAS file: NAME {{ MODULE required option="value" ...; }}; is the form'
    )
