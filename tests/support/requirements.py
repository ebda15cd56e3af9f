"""What a machine may lack: a test that needs it skips and says what is missing.

Where BARNABAS_REQUIRE_ALL is set (CI), nothing may be missing: `tests/conftest.py` fails whatever skips.
"""

from __future__ import annotations

import functools
import os
import shutil
import sysconfig

import pytest

from tests.support import apache_kafka

REQUIRE_ALL = bool(os.environ.get("BARNABAS_REQUIRE_ALL"))


def need_program(name: str) -> str:
    """The path of a program, beside this interpreter or on the path, or the test skips."""
    path = shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)
    if path is None:
        pytest.skip(f"needs {name}, which is not installed")
    return path


def need_apache_kafka() -> None:
    """Apache Kafka's own jars, fetched with Maven if they are not here yet, or the test skips."""
    reason = _why_no_apache_kafka()
    if reason:
        pytest.skip(f"needs Apache Kafka, which can't be had: {reason}")


@functools.cache
def _why_no_apache_kafka() -> str:
    return apache_kafka.why_unavailable()
