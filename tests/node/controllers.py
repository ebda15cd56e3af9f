"""A node that is only a controller, in this process, and a broker that a test plays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from broker.controller.broker_records import supported_features
from broker.controller.metadata_log import METADATA_TOPIC_ID
from broker.environment.environment import Environment
from broker.process.command_line import parse_command_line
from broker.quorum.controller_server import ControllerNode
from broker.starting import start_controller
from protocol.errors import Error
from protocol.messages.broker_to_controller import (
    AdvertisedListener,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    DefaultPrincipalData,
    EnvelopeRequest,
    SupportedFeature,
)
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from protocol.messages.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from protocol.wire.codec import decode, encode
from protocol.wire.schema import Message
from tests.support.disk import files
from tests.support.manual_clock import ManualClock
from tests.support.straight import Straight
from tests.support.wire import Client, header

NODE = 100
CREATE = 7
LISTENER = "CONTROLLER"


@asynccontextmanager
async def controller(folder: Path, *settings: str) -> AsyncIterator[ControllerNode]:
    """Start a controller whose clock stands still. Its sessions last 8 ms, and it checks them each millisecond that
    passes."""
    node = await started(folder, *settings)
    try:
        yield node
    finally:
        await node.stop()
    assert node.failure is None


async def started(folder: Path, *settings: str) -> ControllerNode:
    arguments = ["--data", str(folder)]
    for setting in (
        "process.roles=controller",
        f"node.id={NODE}",
        f"listeners={LISTENER}://127.0.0.1:0",
        "broker.session.timeout.ms=8",
        *settings,
    ):
        arguments += ["-o", setting]
    environment = Environment.of_this_machine(ManualClock(), files)
    node = await start_controller(parse_command_line(arguments, {}).config, environment)
    await until(lambda: node.metadata.log.high_watermark == node.metadata.next_offset)  # its own registration
    return node


def connected(node: ControllerNode) -> Client:
    return Client(Straight(node, LISTENER))


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0)


def pass_ms(node: ControllerNode, milliseconds: int) -> None:
    assert isinstance(node.clock, ManualClock)
    node.clock.advance_ms(milliseconds)


class PlayedBroker:
    """A broker that a test plays: it sends the controller a broker's requests."""

    def __init__(self, node: ControllerNode, broker_id: int, run: int = 1) -> None:
        self.node = node
        self.broker_id = broker_id
        self.run = run
        self.epoch = -1
        self._client = connected(node)

    async def ask(self, request: Message, version: int) -> Any:
        return await self._client.answer(request, version)

    async def register(self, **fields: Any) -> Any:
        usual: dict[str, Any] = {
            "broker_id": self.broker_id,
            "cluster_id": self.node.cluster_id,
            "incarnation_id": bytes((self.run,)) * 16,
            "listeners": [AdvertisedListener(name="PLAINTEXT", host="h", port=9092, security_protocol=0)],
            "features": [
                SupportedFeature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in supported_features().items()
            ],
            "log_dirs": [bytes((1, self.broker_id)) * 8],
        }
        answer = await self.ask(BrokerRegistrationRequest(**{**usual, **fields}), 4)
        if not answer.error_code:
            self.epoch = answer.broker_epoch
        return answer

    async def beat(self, **fields: Any) -> Any:
        usual: dict[str, Any] = {
            "broker_id": self.broker_id,
            "broker_epoch": self.epoch,
            "current_metadata_offset": self.node.metadata.next_offset - 1,
        }
        return await self.ask(BrokerHeartbeatRequest(**{**usual, **fields}), 2)

    async def start(self) -> None:
        """Register the broker, and have it unfenced."""
        assert (await self.register()).error_code == 0
        assert not (await self.beat()).is_fenced


def fetch(
    node: ControllerNode, offset: int, *, epoch: int | None = None, last_epoch: int = 0, **fields: Any
) -> FetchRequest:
    """Return a Fetch request for the metadata log from this offset on."""
    asked = FetchPartition(
        partition=0,
        current_leader_epoch=node.metadata.epoch if epoch is None else epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        high_watermark=fields.pop("high_watermark", -1),
    )
    usual: dict[str, Any] = {
        "max_wait_ms": 0,
        "max_bytes": 1 << 20,
        "topics": [FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[asked])],
        "replica_state": ReplicaState(replica_id=2),
    }
    return FetchRequest(**{**usual, **fields})


def envelope(
    request: Message, version: int, *, user: str = "alice", host: bytes = bytes((10, 0, 0, 1))
) -> EnvelopeRequest:
    """Return a client's request in an envelope, as a broker forwards it."""
    principal = encode(DefaultPrincipalData(type="User", name=user), 0)
    data = header(type(request).API_KEY, version, 77, client_id="theirs") + bytes(encode(request, version))
    return EnvelopeRequest(
        request_data=data,
        request_principal=b"\0\0" + bytes(principal),
        client_host_address=bytes((10, 0, 0, 1)),
    )


def creation(name: str, factor: int = 1) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=factor)
    return CreateTopicsRequest(topics=[topic], timeout_ms=1000)


async def create(client: Client, name: str, factor: int = 1) -> Error:
    """Create a topic by an envelope. Returns the topic's error."""
    answer = await client.answer(envelope(creation(name, factor), CREATE), 0)
    assert answer.error_code == 0
    data = bytes(answer.response_data)
    assert data[:5] == (77).to_bytes(4, "big") + b"\0"
    (result,) = decode(CreateTopicsResponse, CREATE, data, 5).topics
    return Error(result.error_code)
