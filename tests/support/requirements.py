"""Things that a machine may lack: a test that needs one skips and names it.

With BARNABAS_REQUIRE_ALL set (CI), nothing may be missing: `tests/conftest.py` fails every test that skips.
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
    """Return a program's path, beside this interpreter or on the path, or skip the test."""
    path = shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)
    if path is None:
        pytest.skip(f"needs {name}, which is not installed")
    return path


def need_apache_kafka() -> None:
    """Skip the test if Apache Kafka's jars can't be fetched with Maven and aren't there yet."""
    reason = _why_no_apache_kafka()
    if reason:
        pytest.skip(f"needs Apache Kafka, which can't be had: {reason}")


@functools.cache
def _why_no_apache_kafka() -> str:
    return apache_kafka.why_unavailable()
