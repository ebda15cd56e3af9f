"""The broker of tests of faults: one for a module, at which no fault outlives its test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import barnabas


@pytest.fixture(scope="module")
def shared() -> Iterator[barnabas.Broker]:
    """A module may have one of its own under this name, with other settings."""
    with barnabas.Broker() as running:
        yield running


@pytest.fixture
def broker(shared: barnabas.Broker) -> Iterator[barnabas.Broker]:
    """The shared one."""
    yield shared
    shared.disarm_faults()
