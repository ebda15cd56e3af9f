"""What only the garbage collector would let go of."""

from __future__ import annotations

import gc
import types
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_traceback_in_a_cycle() -> Iterator[None]:
    """Nothing inside leaves an exception in a cycle: its frames would hold a request's bytes until the collector comes,
    which is seldom."""
    was_enabled, debug = gc.isenabled(), gc.get_debug()
    gc.collect()
    gc.freeze()  # what there is by now is looked through once, and not again with each test
    gc.disable()
    garbage = gc.garbage[:]
    try:
        yield
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        kept = [each for each in gc.garbage if isinstance(each, types.TracebackType)]
        frames = [(each.tb_frame.f_code.co_qualname, each.tb_lineno) for each in kept]
        assert not frames, frames
    finally:
        gc.set_debug(debug)
        gc.garbage[:] = garbage
        if was_enabled:
            gc.enable()
