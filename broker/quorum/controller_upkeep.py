"""What happens by the clock alone at a node that is only a controller."""

from __future__ import annotations

from contextlib import suppress

from broker.housekeeping import DELETED_CHECK_MS, MAKE_UP_MS, METADATA_CLEANING_MS
from broker.upkeep import Upkeep


class ControllerUpkeep(Upkeep):
    """Runs the periodic tasks."""

    def start(self) -> None:
        """Begins all of it, at the intervals of the settings."""
        checkpoint_ms = self._config.get_int("log.flush.offset.checkpoint.interval.ms")
        self._every("recovery points", checkpoint_ms, self.checkpoint_recovery_points)
        self._every("metadata cleaning", METADATA_CLEANING_MS, self.clean_metadata)
        self._every("deleted directories", DELETED_CHECK_MS, self._log_dirs.find_deleted)
        self._every("made up", MAKE_UP_MS, self._make_up)
        self._begin_closing_idle()

    def _make_up(self) -> None:
        with suppress(MemoryError):
            self._metadata_log.go_on_flushing()
