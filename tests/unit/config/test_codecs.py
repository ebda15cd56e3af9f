"""`compression.type` names a codec whose library isn't installed: it is refused, rather than accepted without
effect."""

from __future__ import annotations

import sys

import pytest

from broker.config.alterations import Alteration, AlterConfigOp, alter_broker, alter_topic, replace_topic
from broker.config.assembly import assemble, settings_of
from broker.config.broker_config import BrokerConfig
from broker.config.definitions import UsageError
from broker.config.setting_checks import Occasion, Proposal, check
from protocol.errors import Error, KafkaError

REMEDY = "it needs the package cramjam, which isn't installed: pip install 'barnabas[compression]'"
ZSTD = {"compression.type": "zstd"}


@pytest.fixture
def _no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cramjam", None)


def configured(origin: str = "-o", **values: str) -> BrokerConfig:
    return assemble([settings_of({name.replace("_", "."): value for name, value in values.items()}, origin)])


@pytest.mark.usefixtures("_no_library")
@pytest.mark.parametrize("codec", ["zstd", "lz4", "snappy"])
def test_a_missing_codec_is_refused_if_typed_and_warned_of_in_a_file(codec: str) -> None:
    with pytest.raises(UsageError) as raised:
        configured(compression_type=codec)
    assert str(raised.value) == f"-o: compression.type={codec} can't be: {REMEDY}"
    assert configured("file:1", compression_type=codec).warnings == [
        f"file:1: compression.type={codec}: {REMEDY}; batches are stored as they come"
    ]


@pytest.mark.usefixtures("_no_library")
def test_a_codec_is_refused_where_a_client_asks_for_it() -> None:
    setting = Alteration("compression.type", AlterConfigOp.SET, "zstd")
    config = configured()
    asked = [
        lambda: check(Occasion.CREATE_TOPIC, Proposal(config, ZSTD)),
        lambda: alter_topic(config, {}, [setting]),
        lambda: replace_topic(config, {"compression.type": "gzip"}, ZSTD),
        lambda: alter_broker(config, {}, [setting], per_broker=False),
    ]
    errors = []
    for ask in asked:
        with pytest.raises(
            KafkaError, match=r"Invalid value zstd for configuration compression\.type: it needs"
        ) as raised:
            ask()
        errors.append(raised.value.error)
    assert errors == [Error.INVALID_CONFIG] * 3 + [Error.INVALID_REQUEST]


@pytest.mark.usefixtures("_no_library")
def test_other_settings_of_a_topic_with_such_a_codec_can_be_altered() -> None:
    other = Alteration("retention.ms", AlterConfigOp.SET, "5")
    assert alter_topic(configured(), ZSTD, [other]) == {"retention.ms": "5"}


@pytest.mark.usefixtures("_no_library")
@pytest.mark.parametrize("codec", ["producer", "uncompressed", "gzip"])
def test_a_codec_that_needs_no_library_is_taken(codec: str) -> None:
    assert configured(compression_type=codec).warnings == []
    check(Occasion.CREATE_TOPIC, Proposal(configured(), {"compression.type": codec}))


def test_each_codec_is_taken_where_its_library_is_installed() -> None:
    for codec in ("zstd", "lz4", "snappy"):
        assert configured(compression_type=codec).warnings == []
        assert replace_topic(configured(), {}, {"compression.type": codec}) == {"compression.type": codec}
