"""Tests of this folder may not start a process."""

from __future__ import annotations

import tests.support.all_imported  # noqa: F401
from tests.support.no_processes import refuse_processes

__all__ = ["refuse_processes"]
