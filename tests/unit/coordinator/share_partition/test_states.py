"""The state tables, cell by cell: what becomes of a record in each state, and of a share partition.

The expectations are Kafka's (`RecordState`, `InFlightState`, `SharePartition`), written out.
"""

from __future__ import annotations

import pytest

from coordinator.share_partition.in_flight_records import InFlightState
from coordinator.share_partition.states import (
    ACKNOWLEDGED_AS,
    ENTERED_FROM,
    ON_INITIALIZE,
    TERMINAL,
    AcknowledgeType,
    PartitionState,
    RecordState,
)
from protocol.errors import Error
from tests.support.share_persister import MemoryPersister
from tests.unit.coordinator.share_partition.partition import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Shared,
)

LIMIT = 5

MOVES = """
from          | AVAILABLE | ACQUIRED | ACKNOWLEDGED | ARCHIVING | ARCHIVED
AVAILABLE     | no        | yes      | no           | no        | no
ACQUIRED      | yes       | no       | yes          | yes       | yes
ACKNOWLEDGED  | no        | no       | no           | no        | no
ARCHIVING     | no        | no       | no           | no        | yes
ARCHIVED      | no        | no       | no           | no        | no
"""


def cells(table: str) -> list[tuple[str, str, str]]:
    head, *rows = [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]
    return [(row[0], column, cell) for row in rows for column, cell in zip(head[1:], row[1:], strict=True)]


@pytest.mark.parametrize(("before", "to", "legal"), cells(MOVES))
def test_a_record_moves_where_that_is_legal(before: str, to: str, legal: str) -> None:
    state = InFlightState(RecordState[before], 1, "m")
    moved = state.move(RecordState[to], LIMIT, "n")
    assert moved == (legal == "yes")
    assert (state.state, state.member_id) == ((RecordState[to], "n") if moved else (RecordState[before], "m"))
    assert state.delivery_count == (2 if moved and to == "ACQUIRED" else 1)


@pytest.mark.parametrize(("before", "to", "legal"), cells(MOVES))
def test_nothing_moves_while_a_change_is_pending(before: str, to: str, legal: str) -> None:
    state = InFlightState(RecordState.ACQUIRED, 1, "m")
    assert state.begin(RecordState.AVAILABLE, LIMIT)
    state.state = RecordState[before]
    assert not state.move(RecordState[to], LIMIT, "n")


@pytest.mark.table("coordinator.share_partition.states.ENTERED_FROM")
def test_the_moves_are_those_of_the_table() -> None:
    assert {(a, b) for b, froms in ENTERED_FROM.items() for a in froms} == {
        (RecordState[a], RecordState[b]) for a, b, legal in cells(MOVES) if legal == "yes"
    }
    assert {state for state in RecordState if not any(state in froms for froms in ENTERED_FROM.values())} == (
        TERMINAL
    )


@pytest.mark.parametrize(("count", "becomes"), [(4, RecordState.AVAILABLE), (5, RecordState.ARCHIVED)])
def test_a_record_delivered_as_often_as_allowed_is_archived_instead_of_available(
    count: int, becomes: RecordState
) -> None:
    state = InFlightState(RecordState.ACQUIRED, count, "m")
    assert state.move(RecordState.AVAILABLE, LIMIT)
    assert (state.state, state.delivery_count) == (becomes, count)


ACKNOWLEDGEMENTS = """
type    | AVAILABLE | ACQUIRED     | ACKNOWLEDGED | ARCHIVED
GAP     | 121       | ARCHIVED     | 121          | 121
ACCEPT  | 121       | ACKNOWLEDGED | 121          | 121
RELEASE | 121       | AVAILABLE    | 121          | 121
REJECT  | 121       | ARCHIVED     | 121          | 121
RENEW   | 121       | ACQUIRED     | 121          | 121
"""


@pytest.mark.parametrize("told_apart", [False, True])
@pytest.mark.parametrize(("kind", "before", "outcome"), cells(ACKNOWLEDGEMENTS))
def test_an_acknowledgement_meets_a_record(kind: str, before: str, outcome: str, told_apart: bool) -> None:
    """Offset 0 stays acquired, so that the following ones stay in flight. They are tracked as a batch or one by one."""
    shared = Shared([(0, 0), (1, 4)])
    shared.fetch(read=1)
    shared.fetch()
    if told_apart:
        assert shared.ack((2, 2, RENEW)) == 0
    brings = {"AVAILABLE": RELEASE, "ACKNOWLEDGED": ACCEPT, "ARCHIVED": REJECT}
    if before in brings:
        assert shared.ack((1, 4, brings[before])) == 0
    states = shared.states()
    answer = shared.ack((1, 4, AcknowledgeType[kind]))
    if outcome == "121":
        assert answer == Error.INVALID_RECORD_STATE
        assert shared.states() == states
    else:
        assert answer == 0
        state = RecordState[outcome]
        owner = "m" if state is RecordState.ACQUIRED else ""
        assert {shared.states()[offset] for offset in (1, 2, 3, 4)} == {(state, 1, owner)}


@pytest.mark.table("coordinator.share_partition.states.ACKNOWLEDGED_AS")
def test_every_acknowledgement_but_renewal_changes_a_record() -> None:
    assert {*ACKNOWLEDGED_AS} == {GAP, ACCEPT, RELEASE, REJECT} == {*AcknowledgeType} - {RENEW}


INITIALIZE = """
state        | answer
EMPTY        | reads
INITIALIZING | LEADER_NOT_AVAILABLE
ACTIVE       | NONE
FAILED       | UNKNOWN_SERVER_ERROR
FENCED       | LEADER_NOT_AVAILABLE
"""


@pytest.mark.parametrize(("state", "column", "outcome"), cells(INITIALIZE))
def test_a_share_partition_is_wanted_by_a_fetch(state: str, column: str, outcome: str) -> None:
    persister = MemoryPersister()
    persister.holds = True
    shared = Shared(persister=persister)
    shared.partition.state = PartitionState[state]
    persister.held.clear()
    shared.initialize()
    if outcome == "reads":
        assert (len(persister.held), shared.initialized) == (1, [])
        assert shared.partition.state is PartitionState.INITIALIZING
    else:
        error = Error[outcome]
        assert (persister.held, shared.initialized) == ([], [None if error is Error.NONE else error])


@pytest.mark.table("coordinator.share_partition.states.ON_INITIALIZE")
def test_every_state_of_a_share_partition_has_its_effect_on_a_fetch() -> None:
    assert {*ON_INITIALIZE} == {*PartitionState}


@pytest.mark.parametrize("state", [each for each in PartitionState if each is not PartitionState.ACTIVE])
def test_only_an_active_share_partition_hands_out_records(state: PartitionState) -> None:
    shared = Shared([(0, 9)])
    shared.partition.state = state
    assert not shared.partition.begin_fetch(shared)
    assert shared.partition.acquire("m", shared.log, fetch_offset=0, most_records=9, batch_size=9) == []
