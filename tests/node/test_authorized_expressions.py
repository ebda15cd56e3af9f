"""A regular expression of a consumer group matches what its member may describe, and nothing else (KIP-848)."""

from __future__ import annotations

from broker.security.authorizer import DESCRIBE, TOPIC
from broker.server import Server
from protocol.errors import Error
from protocol.messages.groups_consumer import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from protocol.messages.metadata import FindCoordinatorRequest
from tests.node.admin_requests import create
from tests.node.test_long_regexes import matched, recorded
from tests.support.denying import Asked, DenyingAuthorizer
from tests.support.straight import Straight
from tests.support.wire import Client


async def beat(node: Server, epoch: int) -> ConsumerGroupHeartbeatResponse:
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="one", member_epoch=epoch)
    answer = await Client(Straight(node)).answer(request, 1)
    assert isinstance(answer, ConsumerGroupHeartbeatResponse)
    return answer


async def test_a_topic_that_the_member_may_not_describe_is_not_matched(node: Server) -> None:
    create(node, ("t1", 1))
    await Client(Straight(node)).answer(FindCoordinatorRequest(key="g"), 3)
    create(node, ("t2", 1))
    create(node, ("other", 1))
    node.authorizer = authorizer = DenyingAuthorizer().deny(DESCRIBE, TOPIC, "t2")
    await matched(node)
    assert recorded(node) == {"t.": ["t1"]}
    answer = await beat(node, 1)
    assert answer.error_code == Error.NONE
    assert answer.assignment is not None
    (assigned,) = answer.assignment.topic_partitions
    assert assigned.topic_id == node.metadata.image.topics["t1"].topic_id
    asked = {each.name for each in authorizer.asked if each[:2] == Asked(DESCRIBE, TOPIC, None)[:2]}
    assert asked == {"t1", "t2"}


async def test_a_member_that_may_describe_no_match_subscribes_to_nothing(node: Server) -> None:
    create(node, ("t1", 1))
    await Client(Straight(node)).answer(FindCoordinatorRequest(key="g"), 3)
    node.authorizer = DenyingAuthorizer().deny(DESCRIBE, TOPIC)
    await matched(node)
    assert recorded(node) == {"t.": []}
