"""Background work without threads."""

from storage.background import Lane, Then, Work


def run_at_once(work: Work, then: Then, /, *, lane: Lane, delay_ms: int = 0) -> None:
    """A `Background` without threads or delays: the work is done before the call returns."""
    try:
        work()
    except Exception as failure:
        then(failure)
    else:
        then(None)
