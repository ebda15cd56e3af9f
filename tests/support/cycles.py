"""What only the garbage collector would let go of."""

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
    """Nothing of the broker's inside is left in a cycle, nor a traceback, whose frames would hold a request's bytes:
    the collector of cycles comes for what has grown old about never (`broker.process.run.GARBAGE_THRESHOLDS`).

    What it gives looks at what has been left so far.
    """
    was_enabled, debug = gc.isenabled(), gc.get_debug()
    gc.collect()
    gc.freeze()  # what there is by now is looked through once, and not again with each test
    gc.disable()
    garbage = gc.garbage[:]

    def look() -> None:
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        gc.set_debug(debug)
        left = Counter(filter(None, map(_name, gc.garbage[len(garbage) :])))
        gc.garbage[:] = garbage
        gc.collect()  # else the next look finds it again
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
    """Of what must not be there."""
    if isinstance(each, types.TracebackType):
        return f"a traceback of {each.tb_frame.f_code.co_qualname}:{each.tb_lineno}"
    if isinstance(each, _BYTES):
        return type(each).__name__
    of = each if isinstance(each, types.FunctionType | type) else type(each)
    return f"{of.__module__}.{of.__qualname__}" if of.__module__.partition(".")[0] in _OURS else None
