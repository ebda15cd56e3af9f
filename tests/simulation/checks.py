"""What must be true, however the machine died."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from protocol.errors import Error
from storage.checkpoints import RECOVERY_POINT_FILE
from storage.directory.log_directory import METADATA_TOPIC
from tests.simulation import log_contents, node_states
from tests.simulation.machine import Machine
from tests.simulation.offsets import fetch_offset
from tests.simulation.reader import Reader
from tests.simulation.virtual_disk import Directory
from tests.simulation.work import MOST_TRANSACTIONAL, PLACES, Outcome, Place, Transaction

if TYPE_CHECKING:
    from tests.simulation.course import Course
    from tests.simulation.simulation import Simulation

REBUILT = (".index", ".timeindex", ".txnindex", ".snapshot")


@dataclass
class Written:
    """The state of a partition's log before a death."""

    recovery_point: int
    log_start: int
    data: bytes
    """What its broker had in it."""
    compacts: bool
    may_be: list[bytes]
    """What its folder may say after a power loss, judging by names."""
    surely_is: list[bytes]
    """The same, of what was synced."""


# --- at a death -----------------------------------------------------------------------------------------------


def written(machine: Machine) -> dict[str, Written]:
    """Return what the broker's logs hold before it dies, by folder."""
    found: dict[str, Written] = {}
    if machine.server is None:
        return found
    for partition in machine.server.partitions.all():
        log = partition.log
        folder = machine.disk.find(log.directory)
        if isinstance(folder, Directory):
            found[log.directory] = Written(
                log.recovery_point,
                log.log_start_offset,
                node_states.log_bytes(machine, log.directory),
                log.config.compacts and machine.server.config.get_boolean("log.cleaner.enable"),
                log_contents.contents(folder),
                log_contents.contents(folder, sure=True),
            )
    return found


def what_is_lost(machine: Machine, before: dict[str, Written], *, power_lost: bool) -> list[str]:
    """Return complaints: nothing synced may be lost, and nothing at all if the power stayed on."""
    complaints = []
    for folder, was in before.items():
        found = machine.disk.find(folder)
        there = log_contents.content(found.names) if isinstance(found, Directory) else b""
        if not power_lost:
            # a start finishes a pending swap: the last change of names says how
            if there != (was.may_be[-1] if was.compacts else was.data):
                complaints.append(f"{folder} changed with a killed process")
            continue
        point = was.recovery_point
        if not was.compacts:
            # Deleted data counts as synced, as in Kafka, and is back if the log's start wasn't written yet. Then a
            # recovery point says little unless it is the log's end.
            synced = log_contents.below(was.data, point)
            is_deleted = node_states.is_deleted_from(folder)
            if is_deleted and synced != log_contents.whole(was.data):
                continue
            deleted = log_contents.below(was.data, was.log_start)
            synced = synced[len(deleted) :]
            places = (there, *_elsewhere(machine, folder))
            if not any(synced in each if is_deleted else each.startswith(synced) for each in places):
                complaints.append(f"{folder} was synced up to offset {point}, and isn't")
            continue
        may_be = [log_contents.below(each, point) for each in was.may_be]
        synced = log_contents.below(there, point)
        if synced not in may_be and _what_compaction_changed(may_be[0], synced):
            complaints.append(
                f"{folder} was synced up to offset {point}, and is neither as before nor compacted"
            )
        complaints += [
            f"{folder}: {complaint}"
            for first, second in pairwise(map(log_contents.whole, was.surely_is))
            for complaint in _what_compaction_changed(first, second)
        ]
    return complaints


def _elsewhere(machine: Machine, folder: str) -> Iterator[bytes]:
    """Yield what the partition's other folders hold: a power loss may undo the new name of one that has just been
    moved."""
    name = folder.rpartition("/")[2]
    for log_dir in machine.folders:
        for other in machine.disk.names(log_dir):
            found = machine.disk.find(f"{log_dir}/{other}")
            is_of_it = other == name or (other.startswith(f"{name}.") and other.endswith("-future"))
            if is_of_it and isinstance(found, Directory):
                yield log_contents.content(found.names)


def _what_compaction_changed(before: bytes, after: bytes) -> list[str]:
    """Return complaints about a pending swap: it must not change what readers by key get, or what the partition knows
    of its producers."""
    old, new = log_contents.view(before), log_contents.view(after)
    complaints = []
    if old.values != new.values:
        complaints.append(f"compaction changed what is read: {old.values} to {new.values}")
    if old.producers != new.producers:
        complaints.append(f"compaction changed the producers: {old.producers} to {new.producers}")
    if old.open_transactions != new.open_transactions:
        complaints.append(
            f"compaction changed what is open: {old.open_transactions} to {new.open_transactions}"
        )
    return complaints


# --- at the end -----------------------------------------------------------------------------------------------


async def check(simulation: Simulation) -> None:
    await _check_rebuilt(simulation, await check_what_is_read(simulation))


async def check_what_is_read(course: Course) -> dict[Place, dict[int, bytes]]:
    """Check what can be read, and return what is committed, by offset."""
    everything: dict[Place, dict[int, bytes]] = {}
    committed: dict[Place, dict[int, bytes]] = {}
    for place in PLACES:
        everything[place], committed[place] = await _check_place(course, place)
    # If the coordinator's state may be lost, a transaction may stay open for good and hide what follows it.
    _check_sent(course, everything if course.work.may_lose else committed)
    effective = [each for each in course.work.transactions if _is_committed(course, each, committed)]
    await _check_offsets(course, effective)
    return committed


def _reader(course: Course, place: Place, *, committed: bool) -> Reader:
    return Reader(course.client(f"checker-{place}"), course.work, place, committed=committed)


async def _check_place(course: Course, place: Place) -> tuple[dict[int, bytes], dict[int, bytes]]:
    """Return what is there, and what of it is committed, by offset."""
    work = course.work
    everything = _reader(course, place, committed=False)
    await everything.read_all()
    reader = _reader(course, place, committed=True)
    found = await reader.read_all()
    if any(reader.offset <= offset < reader.last_stable_offset for offset in everything.values):
        work.complain(f"{place}: what is at {reader.offset} and behind it isn't read, though it is stable")
    if reader.last_stable_offset != reader.high_watermark and not course.work.may_lose:
        work.complain(f"{place}: stable up to {reader.last_stable_offset} of {reader.high_watermark}")
    values = [*everything.values.values()]
    for value in {value for value in values if values.count(value) > 1}:
        work.complain(f"{place} has {value!r} twice")
    last: dict[bytes, bytes] = {}
    for value in values:
        producer = value.split(b"/")[0]
        if last.get(producer, b"") > value:
            work.complain(f"{place} has {value!r} behind {last[producer]!r}")
        last[producer] = value
    for offset, value in work.seen.get(place, {}).items():
        if found.get(offset) != value:
            work.complain(f"{place}: {value!r} was read at {offset}, and there is {found.get(offset)!r}")
    return everything.values, found


def _check_sent(course: Course, read: dict[Place, dict[int, bytes]]) -> None:
    there = {place: {value: offset for offset, value in found.items()} for place, found in read.items()}
    for sent in course.work.sent:
        offset = there[sent.place].get(sent.value)
        if sent.acknowledged and not course.work.may_lose_of(sent.place):
            if offset is None:
                course.work.complain(f"{sent.place}: {sent.value!r} was acknowledged, and isn't there")
            elif sent.offset is not None and sent.offset != offset:
                course.work.complain(f"{sent.place}: {sent.value!r} is at {offset}, not {sent.offset}")


def _is_committed(course: Course, transaction: Transaction, committed: dict[Place, dict[int, bytes]]) -> bool:
    """Check that it is all or nothing, as its client was told."""
    values = {(place, value) for place, sent in transaction.values.items() for value in sent}
    found = {(place, value) for place, value in values if value in committed[place].values()}
    complain = course.work.complain
    if course.work.may_lose:
        # An abort's marker may be lost while the coordinator's Complete isn't. As in Kafka with one replica, the next
        # transaction of the same producer id then ends what was left open, with its own outcome.
        return bool(found)
    if transaction.outcome is Outcome.ABORTED:
        if found:
            complain(f"{transaction.name} was aborted, and is read: {found}")
        return False
    if transaction.outcome is Outcome.COMMITTED and found != values:
        complain(f"{transaction.name} was committed, and there is no {values - found}")
    elif found and found != values:
        complain(f"{transaction.name} is there in part: no {values - found}")
    return bool(found)


async def _check_offsets(course: Course, effective: list[Transaction]) -> None:
    """Check each offset by its `Commits`. A transaction's offset counts if and only if its records do."""
    work, client = course.work, course.client("offsets")
    last: dict[tuple[str, Place], str] = {}
    for group, place in [*work.commits]:
        tag = ""

        async def fetch(group: str = group, place: Place = place) -> Error:
            nonlocal tag
            error, _, tag = await fetch_offset(client, work, group, place)
            return error

        error = await client.insist(fetch)
        if error is not Error.NONE and not work.may_lose:
            work.complain(f"the offset of {group}: {error!r}")
        last[group, place] = tag
    client.close()
    if work.may_lose:
        return
    for number in range(MOST_TRANSACTIONAL):
        key = (f"group-of-{number}", PLACES[0])
        if key in last:
            name = f"transactional-{number}"
            told = [each.commit for each in effective if each.name.split()[0] == name and each.commit]
            expected = told[-1].tag if told else ""
            if last[key] != expected:
                work.complain(f"{key[0]} is at {last[key]!r}, not {expected!r}")


def forget_what_is_rebuilt(machine: Machine) -> None:
    """On a machine that is off, remove everything beside the logs that follows from them."""
    for log_dir in machine.folders:
        for folder in machine.disk.names(log_dir):
            path = f"{log_dir}/{folder}"
            is_log = isinstance(machine.disk.find(path), Directory) and not folder.startswith(METADATA_TOPIC)
            for name in machine.disk.names(path) if is_log else ():
                if name.endswith(REBUILT):
                    machine.disk.forget(f"{path}/{name}")
        machine.disk.forget(f"{log_dir}/{RECOVERY_POINT_FILE}")


async def _check_rebuilt(simulation: Simulation, committed: dict[Place, dict[int, bytes]]) -> None:
    """Check that everything follows from the logs: a broker that has nothing else says and knows the same."""
    machine, work = simulation.machine, simulation.work
    _, complaints = node_states.leader_epochs(machine)
    work.anomalies += complaints
    assert machine.server is not None
    for partition, why in machine.server.cleaner.uncleanable.items():
        work.complain(f"{partition.log.directory} can't be compacted: {why}")
    await machine.until_loaded()
    await machine.until_synced()
    states = node_states.of_logs(machine)
    coordinators = node_states.of_coordinators(machine)
    if not work.may_lose:
        work.anomalies += node_states.open_transactions(machine)
    machine.die(power_lost=False)
    forget_what_is_rebuilt(machine)
    await machine.start()
    await machine.until_loaded()
    await machine.until_synced()
    rebuilt = node_states.of_logs(machine)
    if not work.may_lose or rebuilt == states:
        again = node_states.of_coordinators(machine)
        for name in sorted(coordinators.keys() | again.keys()):
            if again.get(name) != coordinators.get(name):
                work.complain(f"{name} is {again.get(name)} after a start; it was {coordinators.get(name)}")
    for folder, state in states.items():
        if work.may_lose and folder in rebuilt and rebuilt[folder][1] != state[1]:
            # A marker whose coordinator the power set back behind a record that survived by chance: the partition
            # refused it as an old coordinator's, and takes it in the next epoch, after a start.
            continue
        if node_states.is_deleted_from(folder) and folder in rebuilt:
            # the log's start is written later, and a snapshot knows more of what was deleted than the log
            rebuilt[folder], state = node_states.of_what_both_have(rebuilt[folder], state)
        elif work.may_lose and folder in rebuilt:
            # if the power took a log's beginning, a surviving snapshot knows more than the surviving records
            rebuilt[folder], state = map(node_states.by_records, (rebuilt[folder], state))
        if rebuilt.get(folder) != state:
            work.complain(f"{folder} is {rebuilt.get(folder)}, rebuilt from its log; it was {state}")
    for place, found in committed.items():
        if work.may_lose and rebuilt != states:
            break
        if await _reader(simulation, place, committed=True).read_all() != found:
            work.complain(f"{place} is read in another way once its indexes are rebuilt")
    await machine.stop()
