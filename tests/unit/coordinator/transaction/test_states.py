"""The state tables, cell by cell: what each request meets in each state, by the epoch that it brings.

The expectations are Kafka's (`TransactionCoordinator`, read method by method), written out: a number is the error code;
"0" is answered and nothing is logged; "Ongoing/5" is answered, and that state is logged with that epoch; "51
PrepareAbort/6" is refused, yet logged; "Both/6" is PrepareAbort and CompleteAbort at once, as nobody awaits a marker.
Stored are producer id 7, epoch 5, last epoch 4, and t-0 where a transaction is open. Markers are held, so that the step
after Prepare* doesn't follow at once.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator.transaction.producer_ids import TransactionalProducer
from coordinator.transaction.state_manager import ProducerIdAndEpoch
from coordinator.transaction.states import (
    ADD_PARTITIONS,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    END_TXN_V1,
    END_TXN_V2,
    ENTERED_FROM,
    INIT_PRODUCER_ID,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    STATE_NAMES,
    TransactionState,
)
from protocol.errors import Error, KafkaError
from tests.unit.coordinator.transaction.coordinator import T0, T1, Coordinator

ID, OTHER_ID = 7, 8
CURRENT, RETRY, OLDER, NEWER, NONE = 5, 4, 3, 6, -1

COLUMNS = (
    "Empty Ongoing PrepareCommit PrepareAbort CompleteCommit CompleteAbort Dead PrepareEpochFence pending"
)
"""The last column is each of the states while a move to another one is pending."""

# Three dots repeat the answer of the previous column.
CELLS = """
InitProducerId         none     | Empty/6 | 51 PrepareAbort/6 | 51 | 51 | Empty/6 | Empty/6 | -1 | -1 | 51
InitProducerId         current  | Empty/6 | 51 PrepareAbort/6 | 51 | 51 | Empty/6 | Empty/6 | -1 | -1 | 51
InitProducerId         retry    | Empty/5 | 51 PrepareAbort/6 | 51 | 51 | Empty/5 | Empty/5 | -1 | -1 | 51
InitProducerId         older    | 90      | 51 PrepareAbort/6 | 51 | 51 | 90      | 90      | -1 | -1 | 51
InitProducerId         newer    | 90      | 51 PrepareAbort/6 | 51 | 51 | 90      | 90      | -1 | -1 | 51
InitProducerId         other id | 90 | 90 | 90 | 90 | 90 | 90 | 90 | 90 | 51

AddPartitions          current  | Ongoing/5 | Ongoing/5 | 51 | 51 | Ongoing/5 | Ongoing/5 | -1 | -1 | 51
AddPartitions          retry    | 90 | ... | ... | ... | ... | ... | ... | ... | 51
AddPartitions          older    | 90 | ... | ... | ... | ... | ... | ... | ... | 51
AddPartitions          newer    | 90 | ... | ... | ... | ... | ... | ... | ... | 51
AddPartitions          other id | 49 | ... | ... | ... | ... | ... | ... | ... | 51

AddKnownPartition      current  | Ongoing/5 | 0         | 51 | 51 | Ongoing/5 | Ongoing/5 | -1 | -1 | 51
AddKnownPartition      retry    | 90 | ... | ... | ... | ... | ... | ... | ... | 51
AddKnownPartition      older    | 90 | ... | ... | ... | ... | ... | ... | ... | 51
AddKnownPartition      newer    | 90 | ... | ... | ... | ... | ... | ... | ... | 51
AddKnownPartition      other id | 49 | ... | ... | ... | ... | ... | ... | ... | 51

VerifyKnownPartition   current  | 120 | 0   | 51 | 51 | 120 | 120 | 120 | 0   | as without
VerifyKnownPartition   retry    | 90  | ... | ... | ... | ... | ... | ... | ... | as without
VerifyKnownPartition   older    | 90  | ... | ... | ... | ... | ... | ... | ... | as without
VerifyKnownPartition   newer    | 90  | ... | ... | ... | ... | ... | ... | ... | as without
VerifyKnownPartition   other id | 49  | ... | ... | ... | ... | ... | ... | ... | as without
VerifyOtherPartition   current  | 120 | 120 | 51 | 51 | 120 | 120 | 120 | 120 | as without
VerifyOtherPartition   retry    | 90  | ... | ... | ... | ... | ... | ... | ... | as without
VerifyOtherPartition   older    | 90  | ... | ... | ... | ... | ... | ... | ... | as without
VerifyOtherPartition   newer    | 90  | ... | ... | ... | ... | ... | ... | ... | as without
VerifyOtherPartition   other id | 49  | ... | ... | ... | ... | ... | ... | ... | as without

EndTxn4 commit         current  | 48 | PrepareCommit/5 | 51 | 48 | 0  | 48 | -1 | -1 | 51
EndTxn4 commit         retry    | 90 | ... | ... | ... | ... | ... | ... | ... | 90
EndTxn4 commit         older    | 90 | ... | ... | ... | ... | ... | ... | ... | 90
EndTxn4 commit         newer    | 90 | ... | ... | ... | ... | ... | ... | ... | 90
EndTxn4 commit         other id | 49 | ... | ... | ... | ... | ... | ... | ... | 49
EndTxn4 abort          current  | 48 | PrepareAbort/5  | 48 | 51 | 48 | 0  | -1 | -1 | 51
EndTxn4 abort          retry    | 90 | ... | ... | ... | ... | ... | ... | ... | 90
EndTxn4 abort          older    | 90 | ... | ... | ... | ... | ... | ... | ... | 90
EndTxn4 abort          newer    | 90 | ... | ... | ... | ... | ... | ... | ... | 90
EndTxn4 abort          other id | 49 | ... | ... | ... | ... | ... | ... | ... | 49

EndTxn5 commit         current  | 48 | PrepareCommit/6 | 90 | 90 | 48 | 48 | -1 | -1 | 51
EndTxn5 commit         retry    | 90 | 90 | 51 | 48 | 0  | 48 | 90 | 90 | 51
EndTxn5 commit         older    | 90 | ... | ... | ... | ... | ... | ... | ... | 51
EndTxn5 commit         newer    | 90 | ... | ... | ... | ... | ... | ... | ... | 51
EndTxn5 commit         other id | 49 | ... | ... | ... | ... | ... | ... | ... | 51
EndTxn5 abort          current  | Both/6 | PrepareAbort/6 | 90 | 90 | Both/6 | Both/6 | -1 | -1 | 51
EndTxn5 abort          retry    | 90 | 90 | 48 | 51 | 48 | 0  | 90 | 90 | 51
EndTxn5 abort          older    | 90 | ... | ... | ... | ... | ... | ... | ... | 51
EndTxn5 abort          newer    | 90 | ... | ... | ... | ... | ... | ... | ... | 51
EndTxn5 abort          other id | 49 | ... | ... | ... | ... | ... | ... | ... | 51
"""

Ask = Callable[[Coordinator, int, int], object]

REQUESTS: dict[str, Ask] = {
    "InitProducerId": lambda it, producer_id, epoch: it.init(-1 if epoch == NONE else producer_id, epoch),
    "AddPartitions": lambda it, producer_id, epoch: it.add(producer_id, epoch, T0, T1),
    "AddKnownPartition": lambda it, producer_id, epoch: it.add(producer_id, epoch, T0, version=0),
    "VerifyKnownPartition": lambda it, producer_id, epoch: it.verify(producer_id, epoch, T0)[0],
    "VerifyOtherPartition": lambda it, producer_id, epoch: it.verify(producer_id, epoch, T1)[0],
    "EndTxn4 commit": lambda it, producer_id, epoch: it.end(producer_id, epoch, commit=True, version=0),
    "EndTxn4 abort": lambda it, producer_id, epoch: it.end(producer_id, epoch, commit=False, version=0),
    "EndTxn5 commit": lambda it, producer_id, epoch: it.end(producer_id, epoch, commit=True),
    "EndTxn5 abort": lambda it, producer_id, epoch: it.end(producer_id, epoch, commit=False),
}
WHO = {
    "none": (ID, NONE),
    "current": (ID, CURRENT),
    "retry": (ID, RETRY),
    "older": (ID, OLDER),
    "newer": (ID, NEWER),
    "other id": (OTHER_ID, CURRENT),
}


def rows() -> list[tuple[str, str, dict[str, str]]]:
    """Return each request, who sends it, and the expected answer for each state, alone and with a pending move."""
    found = []
    for line in filter(None, CELLS.splitlines()):
        head, *answers = (each.strip() for each in line.split("|"))
        request = next(name for name in REQUESTS if head.startswith(name + " "))
        row: dict[str, str] = {}
        last = ""
        for column, answer in zip(COLUMNS.split(), answers, strict=True):
            last = row[column] = last if answer == "..." else answer
        pending = row.pop("pending")
        for state, answer in [*row.items()]:
            row[f"{state}, pending"] = answer if pending == "as without" else pending
        found.append((request, head.removeprefix(request).strip(), row))
    return found


BY_NAME = {name: state for state, name in STATE_NAMES.items()}


def scene(state: TransactionState, pending: str, level: int) -> Coordinator:
    it = Coordinator(level=level)
    it.markers.is_held = True
    it.put(state, ID, CURRENT, last_producer_epoch=RETRY)
    if pending:
        it.x.pending_state = COMPLETE_COMMIT if state is PREPARE_COMMIT else EMPTY
    return it


def outcome(it: Coordinator, answer: object) -> str:
    """Return the outcome as the table writes it."""
    logged = [each.replace(" 7/", "/") for each in it.told()]
    written = "Both/6" if logged == ["PrepareAbort/6", "CompleteAbort/6"] else " ".join(logged)
    if isinstance(answer, Error) and answer is not Error.NONE:
        return f"{int(answer)} {written}".rstrip()
    return written or "0"


@pytest.mark.table("coordinator.transaction.states.INIT_PRODUCER_ID")
@pytest.mark.table("coordinator.transaction.states.ADD_PARTITIONS")
@pytest.mark.table("coordinator.transaction.states.END_TXN_V1")
@pytest.mark.table("coordinator.transaction.states.END_TXN_V2")
@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize(("request_name", "who", "expected"), rows())
def test_each_request_is_answered_in_each_state_as_by_kafka(
    request_name: str, who: str, expected: dict[str, str], level: int
) -> None:
    found: dict[str, str] = {}
    for cell, answer_expected in expected.items():
        name, _, pending = cell.partition(", ")
        state = BY_NAME[name]
        it = scene(state, pending, level)
        before = it.x.pending_state
        found[cell] = outcome(it, REQUESTS[request_name](it, *WHO[who]))
        if "/" not in answer_expected:
            assert (it.x.state, it.x.pending_state) == (state, before), f"a refusal changes nothing: {cell}"
    assert found == expected


def test_the_table_has_a_row_for_every_request_and_requester() -> None:
    seen = {(request, who) for request, who, _ in rows()}
    for request in REQUESTS:
        asked_by = set(WHO) if request == "InitProducerId" else set(WHO) - {"none"}
        assert {who for name, who in seen if name == request} == asked_by
    assert len(rows()) == len(seen)
    assert {len(row) for _, _, row in rows()} == {8 * 2}


@pytest.mark.parametrize("table", [ENTERED_FROM, INIT_PRODUCER_ID, ADD_PARTITIONS, END_TXN_V1, END_TXN_V2])
def test_every_table_names_all_eight_states(table: dict[TransactionState, object]) -> None:
    assert set(table) == set(TransactionState)


MOVES = """
Empty             < Empty CompleteCommit CompleteAbort
Ongoing           < Empty Ongoing CompleteCommit CompleteAbort
PrepareCommit     < Ongoing
PrepareAbort      < Empty Ongoing CompleteCommit CompleteAbort PrepareEpochFence
CompleteCommit    < PrepareCommit
CompleteAbort     < PrepareAbort
Dead              < Empty CompleteCommit CompleteAbort
PrepareEpochFence < Ongoing
"""


@pytest.mark.table("coordinator.transaction.states.ENTERED_FROM")
@pytest.mark.table("coordinator.transaction.states.STATE_NAMES")
@pytest.mark.parametrize("target", STATE_NAMES.values())
@pytest.mark.parametrize("start", STATE_NAMES.values())
def test_a_move_is_refused_unless_kafka_has_it(start: str, target: str) -> None:
    moves = {
        line.split("<")[0].strip(): line.split("<")[1].split() for line in filter(None, MOVES.splitlines())
    }
    it = Coordinator()
    it.put(BY_NAME[start], ID, CURRENT)
    if start in moves[target]:
        it.x.propose(BY_NAME[target], CURRENT)
        assert it.x.pending_state is BY_NAME[target]
    else:
        with pytest.raises(KafkaError, match="UNKNOWN_SERVER_ERROR"):
            it.x.propose(BY_NAME[target], CURRENT)


def test_a_move_is_refused_while_another_one_is_under_way() -> None:
    it = Coordinator()
    it.put(EMPTY, ID, CURRENT)
    it.x.propose(ONGOING, CURRENT)
    with pytest.raises(KafkaError, match="UNKNOWN_SERVER_ERROR"):
        it.x.propose(ONGOING, CURRENT)


@pytest.mark.parametrize(
    "state", [EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT]
)
@pytest.mark.parametrize("commit", [True, False])
def test_a_retry_across_the_rotation_of_the_producer_id_counts_only_once_it_is_complete(
    state: TransactionState, commit: bool
) -> None:
    it = Coordinator()
    it.put(state, ID, 0, previous_producer_id=OTHER_ID)
    answer = it.end(OTHER_ID, 32766, commit=commit)
    if state not in (COMPLETE_COMMIT, COMPLETE_ABORT):
        assert answer is Error.PRODUCER_FENCED
    elif commit is (state is COMPLETE_COMMIT):
        assert answer == ProducerIdAndEpoch(ID, 0)
    else:
        assert answer is Error.INVALID_TXN_STATE


REQUESTS_OF_UNKNOWN_IDS = [
    ("AddPartitions", Error.INVALID_PRODUCER_ID_MAPPING),
    ("VerifyOtherPartition", Error.INVALID_PRODUCER_ID_MAPPING),
    ("EndTxn4 commit", Error.INVALID_PRODUCER_ID_MAPPING),
    ("EndTxn5 abort", Error.INVALID_PRODUCER_ID_MAPPING),
]


@pytest.mark.parametrize(("request_name", "expected"), REQUESTS_OF_UNKNOWN_IDS)
def test_an_unknown_transactional_id_is_no_mapping_of_the_producer_id(
    request_name: str, expected: Error
) -> None:
    assert REQUESTS[request_name](Coordinator(), ID, CURRENT) is expected


def test_an_empty_transactional_id_is_an_invalid_request() -> None:
    it = Coordinator()
    assert it.init(name="") is Error.INVALID_REQUEST
    assert it.add(ID, CURRENT, name="") is Error.INVALID_REQUEST
    assert it.end(ID, CURRENT, commit=True, name="") is Error.INVALID_REQUEST
    assert it.end(ID, CURRENT, commit=True, name="", version=0) is Error.INVALID_REQUEST
    assert it.shard.verify_partitions(TransactionalProducer("", ID, CURRENT), [T0]) == {
        T0: Error.INVALID_REQUEST
    }
    assert it.shard.transactions == {}
