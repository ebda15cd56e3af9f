"""A request that alters settings of several resources goes in steps. Their size depends on how much there is to
read."""

from __future__ import annotations

from broker.controller.config_decisions import CHARACTERS_PER_ENTRY, ConfigRequest
from protocol.messages.configs import IncrementalAlterableConfig, IncrementalAlterConfigsResource
from protocol.waiting import PER_STEP
from tests.support import wishes

TOPIC = 2


def pauses(resources: int, value: str | None) -> int:
    """Return how often the loop serves others while it looks at so many resources with one setting each."""
    setting = IncrementalAlterableConfig(name="leader.replication.throttled.replicas", value=value)
    asked = ConfigRequest(
        [
            IncrementalAlterConfigsResource(resource_type=TOPIC, resource_name=str(number), configs=[setting])
            for number in range(resources)
        ]
    )
    return wishes.pauses(asked.preprocess(lambda resource: True))


def test_resources_with_long_values_are_examined_in_steps_like_many_resources() -> None:
    assert pauses(10, "0") == pauses(10, None) == 0
    assert pauses(PER_STEP, "0") == 2
    assert pauses(10, "0," * (CHARACTERS_PER_ENTRY * PER_STEP // 2)) == 10
