"""A worker that repeats what it gets, or reports about itself; and a process that has one."""

import asyncio
import os
import socket
import sys

from broker.environment.worker_channel import framed, taken


def main() -> None:
    channel = socket.socket(fileno=0)
    unread = bytearray()
    while True:
        data = channel.recv(1 << 16)
        if not data:
            return
        unread += data
        for message in taken(unread):
            channel.sendall(framed(_answer(message)))


def _answer(message: object) -> object:
    if message == "pid":
        return os.getpid()
    if message == "descriptors":
        return [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if fd != "3"]
    return message


async def _have_one() -> None:
    from broker.environment.workers import WorkerProcesses

    pids: asyncio.Queue[int] = asyncio.Queue()
    worker = WorkerProcesses().start("tests.support.echo_worker", pids.put_nowait, lambda: None)
    worker.send("pid")
    print(await pids.get(), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__" and sys.argv[1:] == ["parent"]:
    asyncio.run(_have_one())
