"""The program's requests say what in them has doubled or lost records."""

from __future__ import annotations

import itertools
from typing import Any

from barnabas.proving.outcomes import reasons

_numbers = itertools.count(1)


def request(api: str, **rest: Any) -> dict[str, Any]:
    return {"n": next(_numbers), "api": api, "client_id": "billing", "request": {}, **rest}


def started(producer_id: int = 7) -> dict[str, Any]:
    return request(
        "InitProducerId", request={"transactional_id": "billing"}, answer={"producer_id": producer_id}
    )


def offsets(upto: int, place: int = 0, producer_id: int = 7) -> dict[str, Any]:
    found = {"orders": {str(place): upto}}
    return request("TxnOffsetCommit", request={"producer_id": producer_id}, offsets=found)


def end(*, committed: bool = True, producer_id: int = 7, **rest: Any) -> dict[str, Any]:
    return request("EndTxn", request={"producer_id": producer_id, "committed": committed}, **rest)


def fetch(offset: int, topic: str = "orders", **rest: Any) -> dict[str, Any]:
    return request("Fetch", offsets={topic: {"0": offset}}, topics={topic: [0]}, **rest)


WITHOUT_ANSWER = {"outcome": "its client has hung up"}


def test_a_commit_whose_answer_was_lost_counts_and_one_that_never_arrived_does_not() -> None:
    requests = [started(), offsets(4), end(**WITHOUT_ANSWER), started(), offsets(4), end()]
    [reason] = reasons(requests, {}, requests[:1])
    assert reason.startswith("it committed offset 4 of orders-0 twice")
    assert reasons(requests, {}, requests[:1], kept_away="EndTxn") == []


def test_offsets_of_a_transaction_that_a_new_start_aborted_are_not_those_of_the_next_one() -> None:
    """The first one read both partitions, the second one only the other."""
    requests = [started(), offsets(4, place=1), end(), offsets(8, place=1), started(), offsets(4), end()]
    requests += [offsets(8, place=1), end()]
    assert reasons(requests, {}, requests[:1]) == []


def test_a_program_that_begins_again_after_a_commit_is_told_so() -> None:
    requests = [started(), fetch(0), end(), fetch(8), end(), started(), fetch(0), end()]
    [reason] = reasons(requests, {}, requests[:5], inputs=["orders"])
    assert reason == (
        f"it read orders-0 from offset 0 again (request {requests[6]['n']}) after EndTxn {requests[4]['n']} had "
        "committed what it made of those records: nothing that it keeps says how far it was"
    )


def test_reading_again_is_no_reason_where_it_is_usual_or_the_program_keeps_its_place() -> None:
    again = [started(), fetch(0), fetch(8), end(), started(), fetch(0), end()]
    assert reasons(again, {}, again, inputs=["orders"]) == []  # it does so undisturbed, too
    assert reasons(again, {}, again[:4], inputs=["prices"]) == []
    assert reasons([*again[:3], offsets(8), *again[3:]], {}, again[:4], inputs=["orders"]) == []
    follower = [*again[:5], fetch(0, client_id="broker-2-fetcher-0"), end()]
    assert reasons(follower, {}, again[:4], inputs=["orders"]) == []
    waits = [started(), fetch(0), end(), fetch(0), end()]  # at a partition without records
    assert reasons(waits, {}, again[:4], inputs=["orders"]) == []
    behind = [*again[:5], fetch(4), end()]  # the last batch, which it may have to do again
    assert reasons(behind, {}, again[:4], inputs=["orders"]) == []
