"""What a broker's answers, and their absence, mean for a try."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from barnabas.spark.codes import NoAnswerError, ResponseError, as_sink_error
from barnabas.spark.errors import (
    NotAsReportedError,
    QueryFencedError,
    TransactionTimeoutError,
    TryFailedError,
)
from barnabas.spark.settings import Settings
from barnabas.spark.wire import Identity


@contextlib.contextmanager
def broker_errors() -> Iterator[None]:
    """Raises what an answer means for the batch (`as_sink_error`), and TryFailedError where there is none."""
    try:
        yield
    except NoAnswerError as error:
        raise TryFailedError(f"no answer from the broker: {error}") from error
    except ResponseError as error:
        raise as_sink_error(error) from error


@contextlib.contextmanager
def fencing_explained(settings: Settings, identity: Identity, began_s: float) -> Iterator[None]:
    """A fenced try was timed out by the broker, or overtaken by a request of its own, or by another query.

    A transaction that the broker aborted while it was written to shows by what its partitions don't hold any more.
    """
    try:
        yield
    except (QueryFencedError, NotAsReportedError) as error:
        took_ms = ms_since(began_s)
        if took_ms >= settings.transaction_timeout_ms:
            raise TransactionTimeoutError(
                f"the batch was aborted by the broker: after {took_ms:.0f} ms it was not done, and "
                f"transaction_timeout_ms={settings.transaction_timeout_ms}. Allow more, or make batches smaller "
                "(maxOffsetsPerTrigger)"
            ) from error
        if isinstance(error, NotAsReportedError):
            raise
        if identity.contested:
            raise TryFailedError(f"an unanswered request of this try fenced it: {error}") from error
        raise QueryFencedError(
            f"another query runs under the name {settings.query!r}, and took its transactional id "
            f"{settings.transactional_id}: give each query a name of its own ({error})"
        ) from error


def ms_since(start_s: float) -> float:
    """Milliseconds since then, by the monotonic clock."""
    return (time.monotonic() - start_s) * 1000
