"""Sockets that a client library leaves to the garbage collector: kafka-python's that were refused, py4j's."""

from __future__ import annotations

import gc
import warnings


def collect_unclosed_sockets() -> None:
    """Collect them now and quietly: at any later time the warning would fail whichever test runs then."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
