"""Reporting several errors of one kind."""

import logging

import pytest

from protocol.errors import BrokenInvariantError, tell_each

log = logging.getLogger("test")


def told_by(failures: dict[str, Exception]) -> tuple[list[str], Exception | None]:
    told = []

    def tell(name: str) -> None:
        if name in failures:
            raise failures[name]
        told.append(name)

    try:
        tell_each("abcd", tell, log, "not told")
    except Exception as raised:
        return told, raised
    return told, None


def test_a_callbacks_failure_is_raised_once_the_others_have_been_called() -> None:
    failure = MemoryError()
    assert told_by({"a": failure}) == (["b", "c", "d"], failure)
    assert told_by({}) == (["a", "b", "c", "d"], None)


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_a_broken_invariant_goes_before_other_failures_which_are_logged(
    order: str, caplog: pytest.LogCaptureFixture
) -> None:
    broken, other = BrokenInvariantError("broken"), MemoryError("other")
    assert told_by(dict(zip(order, (broken, other), strict=True))) == (["c", "d"], broken)
    assert [record.getMessage() for record in caplog.records] == ["not told: other"]
