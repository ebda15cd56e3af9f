"""The broker of the tests of faults. A module shares one broker, and no fault outlives its test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import barnabas


@pytest.fixture(scope="module")
def shared() -> Iterator[barnabas.Broker]:
    """Start the module's broker. A module may define a fixture of this name, with other settings."""
    with barnabas.Broker() as running:
        yield running


@pytest.fixture
def broker(shared: barnabas.Broker) -> Iterator[barnabas.Broker]:
    """Return the shared broker, and disarm its faults after the test."""
    yield shared
    shared.disarm_faults()
