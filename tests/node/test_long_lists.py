"""What lists all that a node knows of a kind does so in turns of the loop."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from broker.controller.image import GROUP_RESOURCE
from broker.controller.pause import PER_STEP
from broker.handlers import list_config_resources
from broker.network.dispatch import with_ports
from broker.network.later import Later
from broker.security.principal import ANONYMOUS
from protocol.messages import metadata_records as records
from protocol.messages.configs import ListConfigResourcesRequest
from tests.support.whole_server import started, take_turns


async def test_config_resources_are_listed_in_turns_where_there_are_many(tmp_path: Path) -> None:
    node = await started(tmp_path)
    names = [f"group-{number}" for number in range(2 * PER_STEP)]
    node.metadata.append(
        [
            records.ConfigRecord(
                resource_type=GROUP_RESOURCE,
                resource_name=name,
                name="consumer.session.timeout.ms",
                value="50000",
            )
            for name in names
        ]
    )
    context = SimpleNamespace(api_version=1, listener_name="PLAINTEXT", principal=ANONYMOUS)
    request = ListConfigResourcesRequest(resource_types=[GROUP_RESOURCE])
    later = with_ports(list_config_resources.handle, node)(context, request)
    assert isinstance(later, Later)
    turns = 0
    while later.answer() is later:
        node.turns._take_turn()
        turns += 1
    assert turns >= 3
    take_turns(node)
    assert [each.resource_name for each in later.answer().config_resources] == names
