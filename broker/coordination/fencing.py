"""How producers are told that another one with their transactional id has taken over (KIP-588)."""

from protocol.errors import Error


def as_known(error: Error, api_version: int, fenced_since: int) -> Error:
    """The error of an answer: a request older than `fenced_since` doesn't know PRODUCER_FENCED, and is told
    INVALID_PRODUCER_EPOCH in its place."""
    if error is Error.PRODUCER_FENCED and api_version < fenced_since:
        return Error.INVALID_PRODUCER_EPOCH
    return error
