"""If the file of recovery points names a deleted partition, that doesn't count for a new partition of the same name."""

from pathlib import Path

from tests.support.partition_logs import HeldBackground, append, batch
from tests.unit.storage.log_directories import UNIQUE, log_of, opened

FILE = "recovery-point-offset-checkpoint"


def test_a_new_log_is_not_taken_for_synced_by_the_one_before_it(tmp_path: Path) -> None:
    """Otherwise, if a power loss took its first segments, a start would go on behind the hole."""
    background = HeldBackground()
    directory = opened(tmp_path, background)
    log = log_of(directory)
    append(log, batch(4))
    log.sync()
    directory.checkpoint_recovery_points()
    background.run_all()
    assert "orders 0" in (tmp_path / FILE).read_text()
    directory.delete_log(log, UNIQUE)
    # the write that drops the partition is still on its way
    assert "orders 0" in (tmp_path / FILE).read_text()
    log_of(directory)
    assert "orders 0" not in (tmp_path / FILE).read_text()
    directory.close(clean=False)
