"""Sockets that client libraries leave to the garbage collector: refused ones of kafka-python, and py4j's."""

from __future__ import annotations

import gc
import warnings


def collect_unclosed_sockets() -> None:
    """Collect them now and quietly. At a later time the warning would fail whichever test runs then."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
