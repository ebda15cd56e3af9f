"""Histories of brokers in processes of their own, on a real disk."""

from __future__ import annotations

import asyncio
import contextlib
import random
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import barnabas
from tests.simulation.restarts.history import History, How, Restartable
from tests.simulation.restarts.nodes import Unanswered
from tests.simulation.restarts.simulated import SETTINGS, of_one_node, of_three
from tests.support.wire import Client

PATIENCE_S = 60.0
MOST_BEFORE_DEATH_S = 0.03


class OnDisk(Restartable):
    """`running` are the brokers by id, `addresses` their present addresses."""

    def __init__(
        self, luck: random.Random, running: Mapping[int, barnabas.Broker], log_dirs: Mapping[int, list[str]]
    ) -> None:
        super().__init__([*running], luck, log_dirs)
        self.running = running
        self._clients: dict[int, Client] = {}

    def forget_connections(self) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    async def ask(self, request: Any, version: int, node_id: int | None = None) -> Any:
        """Ask in a thread, so that a broker can be killed meanwhile."""
        broker_id = self.anyone if node_id is None else node_id
        return await asyncio.to_thread(self._ask, request, version, broker_id)

    def _ask(self, request: Any, version: int, broker_id: int) -> Any:
        try:
            client = self._clients.get(broker_id)
            if client is None:
                client = self._clients[broker_id] = Client.of(self.running[broker_id].bootstrap)
                client.patience_s = PATIENCE_S
            return client.ask(request, version)
        except (OSError, RuntimeError) as error:
            raise Unanswered from error

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.3))

    def now_ms(self) -> int:
        return int(time.time() * 1000)

    async def restart(self, how: How, asked: Callable[[], Awaitable[object]] | None = None) -> None:
        asking = None
        if asked is not None:
            asking = asyncio.ensure_future(asked())
            await asyncio.sleep(self.luck.uniform(0, MOST_BEFORE_DEATH_S))
        await asyncio.to_thread(self.end_and_start, how)
        if asking is not None:
            await asyncio.gather(asking, return_exceptions=True)
        self.forget_connections()

    def end_and_start(self, how: How) -> None:
        raise NotImplementedError


class OneNode(OnDisk):
    def __init__(self, luck: random.Random, broker: barnabas.Broker, folders: list[str]) -> None:
        super().__init__(luck, {1: broker}, {1: folders})
        self._broker = broker

    def end_and_start(self, how: How) -> None:
        if how is How.STOPPED:
            self._broker.restart()
        else:
            self._broker.kill()
            self._broker.start()


class Three(OnDisk):
    """All of them end, or one after the other."""

    def __init__(self, luck: random.Random, cluster: barnabas.Cluster, data: Path) -> None:
        brokers = {int(broker.node_id): broker for broker in cluster.brokers}
        folders = {number: [str(broker.data)] for number, broker in brokers.items()}
        super().__init__(luck, brokers, folders)
        self._cluster = cluster

    def end_and_start(self, how: How) -> None:
        nodes = [*self._cluster.nodes]
        if self.luck.random() < 0.5:
            nodes = [self.luck.choice(nodes)]
        if how is How.STOPPED:
            for node in nodes:
                node.restart()
            return
        for node in nodes:
            node.kill()
        for node in nodes:
            node.begin_to_start()
        for node in nodes:
            node.wait_until_started()


def _config(settings: Sequence[str]) -> dict[str, object]:
    return dict(setting.split("=", 1) for setting in settings)


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="restarts-") as name:
        yield Path(name)


def play(seed: int, *, restarts: int = 4) -> History:
    luck = random.Random(seed)
    with _folder() as folder:
        broker = barnabas.Broker(data=folder / "one", config=_config(of_one_node(luck)))
        with broker:
            return _played(OneNode(luck, broker, [str(folder / "one")]), luck, restarts)


def play_cluster(seed: int, *, restarts: int = 4) -> History:
    luck = random.Random(seed)
    with _folder() as folder:
        config = _config([*SETTINGS, *of_three(luck)])
        with barnabas.Cluster(3, data=folder, config=config) as cluster:
            return _played(Three(luck, cluster, folder), luck, restarts)


def _played(nodes: OnDisk, luck: random.Random, restarts: int) -> History:
    history = History(nodes, luck)

    async def run() -> None:
        try:
            await history.run(restarts, (3, 25))
        finally:
            nodes.forget_connections()

    asyncio.run(run())
    return history
