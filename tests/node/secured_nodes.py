"""A controller and brokers that sign in to each other and speak encrypted, in this process, over its own network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from broker.environment.environment import Environment
from broker.network.listener import Listener
from broker.process.command_line import parse_command_line
from broker.process.format_command import format_command
from broker.quorum.controller_server import ControllerNode
from broker.server import Server
from broker.starting import start, start_controller
from protocol.errors import Error
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.produce import ProduceRequest
from protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from protocol.wire.schema import Message
from tests.support.disk import files
from tests.support.waiting import POLL_S
from tests.support.wire import Client

CONTROLLER_ID, BROKER_IDS = 1, (2, 3, 4)
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
PATIENCE_S = 60
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
NODE = 'username="node" password="node-secret"'

Settings = Mapping[str, str]


def protocols(of_nodes: str) -> Settings:
    """Return settings by which clients connect in plain text, and nodes by this protocol."""
    return {
        "listener.security.protocol.map": f"CLIENTS:PLAINTEXT,NODES:{of_nodes},CONTROLLER:{of_nodes}",
        "connection.failed.authentication.delay.ms": "0",
    }


def plain(password: str = "node-secret") -> Settings:
    """Return settings by which all nodes sign in with PLAIN and this password. They accept `node-secret`."""
    line = f'{PLAIN} required username="node" password="{password}" user_node="node-secret";'
    return {
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.nodes.plain.sasl.jaas.config": line,
        "listener.name.controller.plain.sasl.jaas.config": line,
    }


def scram(mechanism: str) -> Settings:
    """Return settings by which all nodes sign in with SCRAM. The metadata has their credentials."""
    line = f"{SCRAM} required {NODE};"
    return {
        "sasl.enabled.mechanisms": mechanism,
        "sasl.mechanism.inter.broker.protocol": mechanism,
        "sasl.mechanism.controller.protocol": mechanism,
        f"listener.name.nodes.{mechanism.lower()}.sasl.jaas.config": line,
        f"listener.name.controller.{mechanism.lower()}.sasl.jaas.config": line,
    }


AUTHORIZED: Settings = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:node;User:ANONYMOUS",
}


class SecuredNodes:
    """A controller and brokers that sign in to each other. `brokers` has them by id."""

    def __init__(
        self, folder: Path, settings: Settings, *, add_scram: str | None = None, combined: bool = False
    ) -> None:
        """`add_scram`: a credential that the controller's folder is formatted with. `combined`: the first broker is the
        controller, too."""
        self._combined = combined
        self._add_scram = add_scram
        self._folder = folder
        self._settings = settings
        self.controller: ControllerNode | Server
        self.brokers: dict[int, Server] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> SecuredNodes:
        try:
            if self._combined:
                first, *others = BROKER_IDS
                self.controller = await self.start_broker(first, process_roles="broker,controller")
            else:
                others = [*BROKER_IDS]
                await self._start_controller()
            await asyncio.gather(*map(self.start_broker, others))
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._stack.aclose()

    async def _start_controller(self) -> None:
        config = self._config(
            "controller",
            {"process.roles": "controller", "listeners": "CONTROLLER://127.0.0.1:0"},
            CONTROLLER_ID,
        )
        if self._add_scram is not None:
            self._format(self._add_scram)
        self.controller = await start_controller(config, Environment.of_this_machine(files=files))
        self._stack.push_async_callback(self.controller.stop)

    @property
    def listener_of_controller(self) -> Listener:
        """Return the listener at which the controller serves brokers."""
        if isinstance(self.controller, ControllerNode):
            return self.controller.listeners["CONTROLLER"]
        assert self.controller.controller_server is not None
        return self.controller.controller_server.listeners["CONTROLLER"]

    @property
    def address_of_controller(self) -> str:
        return f"127.0.0.1:{self.listener_of_controller.port}"

    async def start_broker(self, node_id: int, **more: str) -> Server:
        """Start a broker. `more`: its settings, with `_` for `.`. Raises StartError as a start does."""
        of_broker = {
            "process.roles": "broker",
            "listeners": "CLIENTS://127.0.0.1:0,NODES://127.0.0.1:0",
            "inter.broker.listener.name": "NODES",
            "broker.heartbeat.interval.ms": "100",
            "transaction.state.log.replication.factor": "3",
            "transaction.state.log.num.partitions": "1",
            "transaction.partition.verification.enable": "false",
            **{name.replace("_", "."): value for name, value in more.items()},
        }
        if "controller" in of_broker["process.roles"]:
            of_broker["listeners"] += ",CONTROLLER://127.0.0.1:0"
        else:
            of_broker["controller.quorum.bootstrap.servers"] = self.address_of_controller
        config = self._config(str(node_id), of_broker, node_id)
        node = await start(config, Environment.of_this_machine(files=files))
        if node_id not in self.brokers:
            self._stack.push_async_callback(self._stop_broker, node_id)
        self.brokers[node_id] = node
        return node

    async def _stop_broker(self, node_id: int) -> None:
        await self.brokers[node_id].stop(leave=False)

    async def restart_broker(self, node_id: int) -> None:
        """Stop the broker, so that it leaves the cluster, and start it again."""
        await self.brokers[node_id].stop()
        await self.start_broker(node_id)

    def _format(self, credential: str) -> None:
        file = self._folder / "controller.properties"
        given = {
            "process.roles": "controller",
            "node.id": CONTROLLER_ID,
            "listeners": "CONTROLLER://127.0.0.1:0",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"{CONTROLLER_ID}@127.0.0.1:9093",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
            "log.dirs": self._folder / "controller",
        }
        file.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
        arguments = ["--config", str(file), "--cluster-id", CLUSTER_ID, "--add-scram", credential]
        assert format_command(arguments) == 0

    def _config(self, name: str, given: Settings, node_id: int) -> Any:
        arguments = ["--data", str(self._folder / name), "-o", f"node.id={node_id}"]
        for setting, value in {"controller.listener.names": "CONTROLLER", **self._settings, **given}.items():
            arguments += ["-o", f"{setting}={value}"]
        return parse_command_line(arguments, {"CLUSTER_ID": CLUSTER_ID}).config

    # --- as a client ----------------------------------------------------------------------------------------

    async def ask(self, node_id: int, request: Message, version: int) -> Any:
        """Ask one of the brokers by a connection of its own."""
        return await asyncio.to_thread(self._ask, node_id, request, version)

    def _ask(self, node_id: int, request: Message, version: int) -> Any:
        with Client.connect(self.brokers[node_id].listeners["CLIENTS"].port) as client:
            return client.ask(request, version)

    def route(self, request: Any, version: int) -> Any:
        """Send the request where a client would: to the leader of its first partition, or else to the coordinator of
        all transactions. Call this in a thread."""
        topic = "__transaction_state"
        partition = 0
        if isinstance(request, ProduceRequest):
            [of_topic] = request.topic_data
            topic, partition = of_topic.name, of_topic.partition_data[0].index
        metadata = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        [found] = self._ask(BROKER_IDS[0], metadata, 12).topics
        leaders = {each.partition_index: each.leader_id for each in found.partitions}
        return self._ask(leaders[partition], request, version)

    async def create(self, topic: str, partitions: int = 1) -> None:
        """Create a topic with a replica on each broker, and wait until all of them are in sync."""
        wanted = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=len(BROKER_IDS))
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=10_000)
        answer = await self.ask(BROKER_IDS[0], request, 7)
        assert [each.error_code for each in answer.topics] == [Error.NONE], answer
        await until(lambda: self.is_in_sync(topic))

    def is_in_sync(self, topic: str) -> bool:
        found = [node.metadata.image.topics.get(topic) for node in self.brokers.values()]
        return all(
            each is not None
            and all(len(partition.isr) == len(partition.replicas) for partition in each.partitions.values())
            for each in found
        )


@asynccontextmanager
async def secured(
    folder: Path, *settings: Settings, add_scram: str | None = None, combined: bool = False
) -> AsyncIterator[SecuredNodes]:
    """Start the nodes, and stop them at the end."""
    together: dict[str, str] = {}
    for each in settings:
        together |= each
    async with SecuredNodes(folder, together, add_scram=add_scram, combined=combined) as nodes:
        yield nodes


async def until(condition: Callable[[], object]) -> None:
    """Wait until the condition holds. The nodes' and clients' threads run meanwhile."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(POLL_S)
