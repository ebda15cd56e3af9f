"""Finds garbage that only the cycle collector would free."""

from __future__ import annotations

import gc
import types
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_OURS = ("broker", "coordinator", "protocol", "storage")
_BYTES = (bytearray, memoryview)


@contextmanager
def nothing_in_a_cycle() -> Iterator[Callable[[], None]]:
    """Check that nothing of the broker is left in a cycle, nor a traceback, whose frames would hold a request's bytes.
    The cycle collector almost never frees old objects (`broker.process.run.GARBAGE_THRESHOLDS`).

    The yielded function checks everything left so far.
    """
    was_enabled, debug = gc.isenabled(), gc.get_debug()
    gc.collect()
    gc.freeze()  # look through existing objects once, and not again for each test
    gc.disable()
    garbage = gc.garbage[:]

    def look() -> None:
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        gc.set_debug(debug)
        left = Counter(filter(None, map(_name, gc.garbage[len(garbage) :])))
        gc.garbage[:] = garbage
        gc.collect()  # otherwise the next check finds it again
        assert not left, dict(left)

    try:
        yield look
        look()
    finally:
        gc.set_debug(debug)
        gc.garbage[:] = garbage
        if was_enabled:
            gc.enable()


def _name(each: object) -> str | None:
    """Return the name of an object that must not be there, or None."""
    if isinstance(each, types.TracebackType):
        return f"a traceback of {each.tb_frame.f_code.co_qualname}:{each.tb_lineno}"
    if isinstance(each, _BYTES):
        return type(each).__name__
    of = each if isinstance(each, types.FunctionType | type) else type(each)
    return f"{of.__module__}.{of.__qualname__}" if of.__module__.partition(".")[0] in _OURS else None
