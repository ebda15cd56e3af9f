"""What the file of recovery points says of a partition that is gone counts for no new one of its name."""

from pathlib import Path

from tests.support.partition_logs import HeldBackground, append, batch
from tests.unit.storage.log_directories import UNIQUE, log_of, opened

FILE = "recovery-point-offset-checkpoint"


def test_a_new_log_is_not_taken_for_synced_by_the_one_before_it(tmp_path: Path) -> None:
    """A power loss may take its first segments, and a start would go on behind the hole."""
    background = HeldBackground()
    directory = opened(tmp_path, background)
    log = log_of(directory)
    append(log, batch(4))
    log.sync()
    directory.checkpoint_recovery_points()
    background.run_all()
    assert "orders 0" in (tmp_path / FILE).read_text()
    directory.delete_log(log, UNIQUE)
    assert "orders 0" in (tmp_path / FILE).read_text()  # what says otherwise is on its way
    log_of(directory)
    assert "orders 0" not in (tmp_path / FILE).read_text()
    directory.close(clean=False)
