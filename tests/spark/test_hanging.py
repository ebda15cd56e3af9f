"""Which markers the sink writes in the cluster's place: a cluster that is made of what the coordinator and the
partitions say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("kafka", reason="needs kafka-python, of the extra `spark`")
pytest.importorskip("pyspark", reason="needs pyspark, of the extra `spark`")

from barnabas.spark import errors as codes
from barnabas.spark import hanging, transaction
from barnabas.spark.errors import HangingTransactionError, NoAnswerError, ResponseError, TryFailedError
from barnabas.spark.wire import Identity
from barnabas.spark.wire_connection import DescribedTransaction, Leaders, OpenTransaction

TAKEN = "take"
NEXT = Identity(7, 10)


@dataclass
class Cluster:
    """state: of the transactional id, at (producer_id, epoch). open: where each transaction without a marker lies.

    taken: what InitProducerId is to answer. done: what was asked for, in order. refuses: requests, with error codes.
    """

    state: str
    producer_id: int
    epoch: int
    open: dict[tuple[int, int], str]
    committed: set[tuple[int, int]] = field(default_factory=set)
    taken: Identity = NEXT
    timeout_ms: int = 0
    then: list[str] = field(default_factory=list)
    refuses: dict[str, int] = field(default_factory=dict)
    done: list[Any] = field(default_factory=list)

    def describe_transaction(self, transactional_id: str) -> DescribedTransaction | None:
        self._refuse("describe")
        said = self.state
        if self.then:
            self.state = self.then.pop(0)
        return None if said == "Dead" else DescribedTransaction(said, self.producer_id, self.epoch)

    def open_transactions(self, leaders: Callable[[], Leaders]) -> list[OpenTransaction]:
        self._refuse("producers")
        return [
            OpenTransaction(topic, 0, 1, producer_id, epoch, 0, 5, 0)
            for (producer_id, epoch), topic in self.open.items()
        ]

    def write_markers(self, transactions: list[OpenTransaction], *, commit: bool) -> None:
        self._refuse("markers")
        for one in transactions:
            self.done.append(("commit" if commit else "abort", one.producer_id, one.epoch))
            del self.open[one.producer_id, one.epoch]

    def take(self) -> Identity:
        self.done.append(TAKEN)
        self.state, self.producer_id, self.epoch = "Empty", *self.taken[:2]
        return self.taken

    def next_identity(self) -> Identity:
        connection: Any = self
        return hanging.next_identity(connection, "id", dict, lambda: self.committed, self.take)

    def _refuse(self, request: str) -> None:
        if request in self.refuses:
            raise ResponseError(self.refuses[request], "Refused", request)


@pytest.mark.parametrize("state", ["Empty", "Ongoing", "CompleteCommit", "CompleteAbort", "Dead"])
def test_with_nothing_hanging_only_an_epoch_is_taken(state: str) -> None:
    cluster = Cluster(state, 7, 9, {(5, 1): "another producer's"})
    assert cluster.next_identity() == (7, 10, False)
    assert cluster.done == [TAKEN]


def test_a_commit_is_made_good_before_another_epoch_hides_it() -> None:
    cluster = Cluster("CompleteCommit", 7, 9, {(7, 9): "out"}, committed={(7, 8)})
    cluster.next_identity()
    assert cluster.done == [("commit", 7, 9), TAKEN]


@pytest.mark.parametrize(
    ("state", "epoch", "hangs"),
    [
        ("Ongoing", 9, 9),  # which InitProducerId aborts
        ("CompleteAbort", 9, 9),
        ("CompleteAbort", 9, 8),  # timed out, or fenced
        ("Empty", 9, 9),
    ],
)
@pytest.mark.parametrize("committed", [set(), {(7, 7)}, {(5, 30_000)}])
def test_an_uncommitted_transaction_is_aborted(
    state: str, epoch: int, hangs: int, committed: set[tuple[int, int]]
) -> None:
    cluster = Cluster(state, 7, epoch, {(7, hangs): "out"}, committed=committed)
    cluster.next_identity()
    assert cluster.done == [TAKEN, ("abort", 7, hangs)]


def test_an_open_transaction_is_aborted_when_the_producer_id_changes_as_well() -> None:
    cluster = Cluster("Ongoing", 6, 32766, {(6, 32766): "out"}, committed={(6, 32765)}, taken=Identity(7, 0))
    cluster.next_identity()
    assert cluster.done == [TAKEN, ("abort", 6, 32766)]


@pytest.mark.parametrize("state", ["CompleteCommit", "CompleteAbort", "Empty", "Ongoing"])
def test_an_earlier_transaction_ends_as_the_querys_own_markers_say(state: str) -> None:
    cluster = Cluster(state, 7, 9, {(7, 6): "out"}, committed={(7, 5), (7, 6), (7, 8)})
    cluster.next_identity()
    assert cluster.done == [TAKEN, ("commit", 7, 6)]


@pytest.mark.parametrize("state", ["CompleteCommit", "Empty", "Ongoing"])
def test_nothing_is_guessed_about_an_earlier_transaction_whose_marker_compaction_may_have_taken(
    state: str,
) -> None:
    cluster = Cluster(state, 7, 9, {(7, 6): "out"}, committed={(7, 8)})
    with pytest.raises(
        HangingTransactionError, match=r"out-0 from offset 5 on \(producer 7, epoch 6\).*nobody knows"
    ):
        cluster.next_identity()
    assert cluster.done == [TAKEN]


def test_fencing_another_drivers_batch_under_way_aborts_it_and_never_commits_it() -> None:
    cluster = Cluster("CompleteCommit", 7, 3, {(7, 4): "out"}, committed={(7, 3)}, taken=Identity(7, 5))
    cluster.next_identity()
    assert cluster.done == [TAKEN, ("abort", 7, 4)]


@pytest.mark.parametrize("state", ["CompleteCommit", "Empty", "Ongoing"])
def test_the_batch_of_a_driver_that_has_taken_over_is_left_alone(state: str) -> None:
    cluster = Cluster(state, 7, 3, {(7, 5): "out"}, committed={(7, 3)}, taken=Identity(7, 4))
    cluster.next_identity()
    assert cluster.done == [TAKEN]


def test_an_end_that_is_under_way_is_waited_for() -> None:
    cluster = Cluster("PrepareCommit", 7, 9, {(7, 9): "out"}, timeout_ms=1000)
    cluster.then = ["PrepareCommit", "CompleteCommit"]
    cluster.next_identity()
    assert cluster.done == [("commit", 7, 9), TAKEN]


@pytest.mark.parametrize("state", ["PrepareCommit", "PrepareAbort", "PrepareEpochFence"])
def test_an_end_that_never_comes_costs_a_try(state: str) -> None:
    cluster = Cluster(state, 7, 9, {})
    with pytest.raises(TryFailedError, match=f"stayed in {state} for 0 ms"):
        cluster.next_identity()
    assert cluster.done == []


@pytest.mark.parametrize("code", sorted(hanging.UNSEEN))
def test_an_invisible_state_does_not_prevent_an_epoch(code: int) -> None:
    cluster = Cluster("CompleteCommit", 7, 9, {(7, 9): "out"}, refuses={"producers": code})
    assert cluster.next_identity() == (7, 10, False)
    cluster = Cluster("CompleteCommit", 7, 9, {}, refuses={"describe": codes.UNSUPPORTED_VERSION})
    assert cluster.next_identity() == (7, 10, False)


def test_a_commit_that_may_not_be_made_good_yet_is_when_that_is_allowed() -> None:
    cluster = Cluster("CompleteCommit", 7, 9, {(7, 9): "out"})
    cluster.refuses["markers"] = codes.CLUSTER_AUTHORIZATION_FAILED
    work: Any = SimpleNamespace(
        connection=SimpleNamespace(init_producer_id=lambda *arguments: cluster.take()),
        settings=SimpleNamespace(transactional_id="id", transaction_timeout_ms=1),
    )
    with pytest.raises(
        HangingTransactionError, match="allow its principal the operation ClusterAction"
    ) as caught:
        cluster.next_identity()
    transaction._give_up(work, caught.value)
    assert cluster.done == []
    cluster.refuses.clear()
    cluster.next_identity()
    assert cluster.done == [("commit", 7, 9), TAKEN]


def test_giving_up_a_batch_makes_an_unanswered_commit_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster("CompleteCommit", 7, 9, {(7, 9): "out"})
    monkeypatch.setattr(transaction, "_identity", lambda work: cluster.next_identity())
    nothing: Any = None
    transaction._give_up(nothing, NoAnswerError("EndTxn"))
    assert cluster.done == [("commit", 7, 9), TAKEN]
