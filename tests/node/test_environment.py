"""The environment: its parts, and that nothing in the broker bypasses it."""

import ast
import random
import threading
from collections.abc import Iterator

import pytest

from broker.environment.scheduler import Chance
from broker.environment.threads import BackgroundThreads
from protocol.wire.primitives import uuid_to_text
from storage.background import Lane
from tests.support.house import ROOT, sources

# These aren't part of a node: they run the process's loop and read the command line.
OUTSIDE_OF_A_NODE = ("environment", "process", "__main__.py")
# These don't read the node's folder: files named by the command line or a setting, a separate process, a socket.
NOT_OF_A_NODES_DISK = (
    "config/given_settings.py",
    "config/static_jaas.py",
    "security/signed_tokens.py",
    "cleaner/worker.py",
    "network/unsent.py",
)
# The syntax of addresses, and the machine's name if no setting gives one.
ABOUT_ADDRESSES = {"config/listeners.py: socket", "config/assembly.py: socket"}
TIME_CHANCE_AND_SOCKETS = {"socket", "time", "random", "secrets", "uuid", "threading", "concurrent"}
OF_THE_LOOP = {
    "call_at",
    "get_event_loop",
    "new_event_loop",
    "run_in_executor",
    "sleep",
    "timeout",
    "urandom",
    "wait_for",
}


def nodes() -> Iterator[tuple[str, list[ast.AST]]]:
    for source in sources("broker"):
        place = source.path.relative_to(ROOT / "broker")
        if place.parts[0] not in OUTSIDE_OF_A_NODE:
            yield str(place), source.nodes


def test_only_the_environment_has_a_clock_chance_threads_and_sockets() -> None:
    seen = []
    for place, found in nodes():
        for node in found:
            modules = []
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                modules = [node.module or ""]
            seen += [f"{place}: {name}" for name in modules if name.split(".")[0] in TIME_CHANCE_AND_SOCKETS]
    assert set(seen) == ABOUT_ADDRESSES


def test_only_the_environment_asks_for_the_running_loop() -> None:
    seen = [
        f"{place}:{node.lineno}: {node.attr}"
        for place, found in nodes()
        for node in found
        if isinstance(node, ast.Attribute)
        and node.attr in OF_THE_LOOP
        # the timers of the coordinators, which the environment has
        and not (isinstance(node.value, ast.Attribute) and node.value.attr == "timers")
    ]
    assert seen == []


def test_disk_contents_are_only_asked_of_files() -> None:
    seen = []
    for place, found in nodes():
        if place in NOT_OF_A_NODES_DISK:
            continue
        for node in found:
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                if called == "open" or (called.startswith("os.") and called != "os.path.abspath"):
                    seen.append(f"{place}:{node.lineno}: {called}")
    assert seen == []


# --- chance -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 9, 255, 256, 257, 1000])
def test_each_number_of_a_range_is_drawn_and_none_beside_it(count: int) -> None:
    chance = Chance(random.Random(count).randbytes)
    drawn = [chance.randrange(count) for _ in range(count * 20)]
    assert min(drawn) == 0
    assert max(drawn) == count - 1
    assert len(set(drawn)) > 0.99 * count


def test_a_range_may_begin_anywhere() -> None:
    chance = Chance(random.Random(1).randbytes)
    assert {chance.randrange(5, 8) for _ in range(100)} == {5, 6, 7}
    with pytest.raises(ValueError, match="nothing to draw from"):
        chance.randrange(0)


def test_a_uuid_is_of_version_4_and_begins_with_no_dash() -> None:
    chance = Chance(random.Random(1).randbytes)
    for _ in range(1000):
        drawn = chance.uuid()
        assert drawn[6] >> 4 == 4
        assert drawn[8] >> 6 == 2
        assert not uuid_to_text(drawn).startswith("-")


def test_a_seed_repeats_its_draws() -> None:
    one, other = (Chance(random.Random(7).randbytes) for _ in range(2))
    assert [one.uuid(), one.folder_name(), one.randrange(100)] == [
        other.uuid(),
        other.folder_name(),
        other.randrange(100),
    ]


# --- work in the background ---------------------------------------------------------------------------------


async def test_flushing_waits_for_no_deletion() -> None:
    background = BackgroundThreads()
    flushed = threading.Event()
    order: list[str] = []

    def delete() -> None:
        assert flushed.wait(30)

    background(delete, lambda _: order.append("deleted"), lane=Lane.DELETING)
    background(flushed.set, lambda _: order.append("flushed"), lane=Lane.FLUSHING)
    await background.finish()
    assert sorted(order) == ["deleted", "flushed"]


async def test_work_of_one_lane_is_done_in_order() -> None:
    background = BackgroundThreads()
    done: list[int] = []
    told: list[int] = []
    for number in range(50):
        background(
            lambda number=number: done.append(number),  # type: ignore[misc]
            lambda _, number=number: told.append(number),  # type: ignore[misc]
            lane=Lane.WRITING,
        )
    await background.finish()
    assert done == told == [*range(50)]


async def test_work_that_waits_for_its_delay_is_dropped_at_the_end() -> None:
    background = BackgroundThreads()
    done: list[str] = []
    background(lambda: done.append("late"), lambda _: None, lane=Lane.DELETING, delay_ms=60_000)
    await background.finish()
    assert done == []
