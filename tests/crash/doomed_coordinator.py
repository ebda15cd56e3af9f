"""A broker that ends by SIGKILL within a transaction: `python -m tests.crash.doomed_coordinator PLAN ARGS...`.

The plan is that of `doomed_broker`, but a point says at whose request it is passed: `EndTxn: append t-1/*.log`. Until
the next request of transactions what happens belongs to the one before. Two points are none of files: `begin`, where a
request is about to be handled, and `answer`, where its answer is about to leave. `Timeout` is the look for transactions
whose time is up; it is only taken while the file `time_is_up` exists. Markers go out two in a turn of the loop.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from storage.files import FaultHook
from tests.crash.doomed_broker import ask_before_each_operation, killer, recorder

MARKERS_PER_TURN = 2
TIMEOUT = "Timeout"
REQUESTS = {
    "init_producer_id": "InitProducerId",
    "add_partitions_to_txn": "AddPartitionsToTxn",
    "add_offsets_to_txn": "AddOffsetsToTxn",
    "produce": "Produce",
    "txn_offset_commit": "TxnOffsetCommit",
    "end_txn": "EndTxn",
}
"""Handlers by module, and the API of each."""

LOOKING = frozenset(
    {
        "exists",
        "list_directory",
        "list_subdirectories",
        "lock",
        "modified_ms",
        "open_existing",
        "read",
        "read_into",
        "read_whole",
        "real_path",
        "size_of",
        "unlock",
        "volume",
    }
)
"""Operations that leave a folder as it was. Readers do them at any time, so they are nobody's points."""

PASSED_OVER = ""
LOG_APPEND = "log"
BEGIN = "begin"
ANSWER = "answer"

_request = ""


def point_of(operation: str, path: str) -> str:
    """`EndTxn: append t-1/*.log`; PASSED_OVER where nothing of a transaction has begun, and for who just looks."""
    if not _request or operation in LOOKING:
        return PASSED_OVER
    if not path:
        return f"{_request}: {operation}"
    folder, name = os.path.split(path)
    return f"{_request}: {operation} {os.path.basename(folder)}/{re.sub(r'[0-9]{6,}', '*', name)}"


def main() -> int:
    plan = json.loads(sys.argv[1])
    sys.argv[1:2] = []
    if "record" in plan:
        hook = recorder(plan["record"], point_of)
        note_appends_to_logs(hook)
    else:
        hook = killer(plan["point"], plan["count"], plan["torn"], point_of)
    ask_before_each_operation(hook)
    note_requests(hook)
    note_the_timeout(Path(plan["time_is_up"]), hook)
    from broker.__main__ import main as run_broker
    from broker.coordination import transactions

    assert hasattr(transactions, "MARKERS_PER_TURN")
    transactions.MARKERS_PER_TURN = MARKERS_PER_TURN
    run: Callable[[], int] = run_broker
    return run()


def note_requests(hook: FaultHook) -> None:
    from broker.network import dispatch

    with_ports = dispatch.with_ports

    def noted_with_ports(handle: Callable[..., Any], server: Any) -> Callable[..., Any]:
        bound = with_ports(handle, server)
        api = REQUESTS.get(handle.__module__.removeprefix("broker.handlers."))
        return bound if api is None else noted(bound, api, hook)

    dispatch.with_ports = noted_with_ports


def noted(handle: Callable[..., Any], api: str, hook: FaultHook) -> Callable[..., Any]:
    def noted_handle(*arguments: Any) -> Any:
        global _request
        _request = api
        hook(BEGIN, "", 0)
        answer = handle(*arguments)
        hook(ANSWER, "", 0)
        return answer

    return noted_handle


def note_the_timeout(time_is_up: Path, hook: FaultHook) -> None:
    from coordinator.transaction.expiry import TransactionExpiry

    abort = TransactionExpiry.abort_timed_out

    def noted_abort(expiry: TransactionExpiry) -> None:
        global _request
        if time_is_up.exists():
            if expiry.timed_out():
                _request = TIMEOUT
                hook_begin()
            abort(expiry)

    def hook_begin() -> None:
        hook(BEGIN, "", 0)

    TransactionExpiry.abort_timed_out = noted_abort  # type: ignore[method-assign]


def note_appends_to_logs(hook: FaultHook) -> None:
    """Each append to a log, as the log itself sees it: so that one which passes no point is noticed."""
    from storage.log.partition_log import PartitionLog

    append = PartitionLog.append

    def noted_append(log: PartitionLog, *arguments: Any, **options: Any) -> Any:
        hook(LOG_APPEND, os.path.join(log.directory, ""), 0)
        return append(log, *arguments, **options)

    PartitionLog.append = noted_append  # type: ignore[method-assign]


if __name__ == "__main__":
    assert Path.cwd().joinpath("storage").is_dir()
    sys.exit(main())
