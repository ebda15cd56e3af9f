"""A log does whatever is asked of it as plain lists would, through restarts of both kinds."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from protocol.errors import Error, KafkaError
from storage.log.partition_log import AppendOrigin, PartitionLog
from tests.support.examples import examples
from tests.support.log_model import LogModel, Stored, committed_values, stored_batches
from tests.support.partition_logs import NOW_MS, append, batch, marker, open_log

PRODUCERS = st.sampled_from([1, 2, 3])
COUNTS = st.integers(1, 4)
STEPS_MS = st.integers(-50, 200)
FRACTIONS = st.floats(0, 1, allow_nan=False)


class LogMachine(RuleBasedStateMachine):
    log: PartitionLog

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="log-machine-"))
        self.model = LogModel()
        self.records = 0
        self.clock_ms = NOW_MS

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.check_everything()
            self.log.close(clean=False)
        shutil.rmtree(self.directory)

    @initialize(
        segment_bytes=st.sampled_from([300, 700, 5000]), index_interval_bytes=st.sampled_from([0, 150, 4096])
    )
    def begin(self, segment_bytes: int, index_interval_bytes: int) -> None:
        self.config = {
            "segment_bytes": segment_bytes,
            "index_interval_bytes": index_interval_bytes,
            "retention_ms": 1000,
        }
        self.log = open_log(self.directory, **self.config)

    # ---- appends

    def fresh(self, count: int, step_ms: int) -> tuple[tuple[int, ...], tuple[bytes, ...]]:
        """Timestamps and values that no other record has."""
        self.clock_ms += step_ms
        times = tuple(self.clock_ms + at for at in range(count))
        values = tuple(b"%d" % (self.records + at) for at in range(count))
        self.records += count
        return times, values

    def append(self, stored: Stored) -> None:
        data = batch(
            timestamps=list(stored.timestamps),
            values=list(stored.values),
            producer_id=stored.producer_id,
            producer_epoch=0 if stored.producer_id >= 0 else -1,
            base_sequence=stored.sequence,
            transactional=stored.transactional,
        )
        result = append(self.log, data)
        assert (result.base_offset, result.duplicate) == (stored.base_offset, False)
        self.model.add(stored)

    def may_be_forgotten(self, producer_id: int) -> bool:
        """A producer of which the log holds no data any more is unknown after some restarts."""
        last = self.model.last_batch(producer_id)
        return last is not None and last.next_offset <= self.model.log_start_offset

    @rule(count=COUNTS, step_ms=STEPS_MS)
    def append_plain(self, count: int, step_ms: int) -> None:
        self.append(Stored(self.model.end_offset, *self.fresh(count, step_ms)))

    @rule(producer_id=PRODUCERS, count=COUNTS, step_ms=STEPS_MS)
    def append_produced(self, producer_id: int, count: int, step_ms: int) -> None:
        if self.may_be_forgotten(producer_id):
            return
        sequence = self.model.next_sequence(producer_id)
        transactional = producer_id in self.model.open_transactions()
        times, values = self.fresh(count, step_ms)
        self.append(Stored(self.model.end_offset, times, values, producer_id, sequence, transactional))

    @rule(producer_id=PRODUCERS, count=COUNTS, step_ms=STEPS_MS)
    def append_transactional(self, producer_id: int, count: int, step_ms: int) -> None:
        if self.may_be_forgotten(producer_id):
            return
        sequence = self.model.next_sequence(producer_id)
        times, values = self.fresh(count, step_ms)
        self.append(Stored(self.model.end_offset, times, values, producer_id, sequence, True))

    @rule(producer_id=PRODUCERS)
    def retry_the_last_batch(self, producer_id: int) -> None:
        last = self.model.last_batch(producer_id)
        if last is None or self.may_be_forgotten(producer_id):
            return
        data = batch(
            len(last.values),
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=last.sequence,
            transactional=last.transactional,
        )
        result = append(self.log, data)
        assert (result.base_offset, result.duplicate) == (last.base_offset, True)

    @rule(producer_id=PRODUCERS, ahead=st.integers(1, 9))
    def leave_out_a_sequence(self, producer_id: int, ahead: int) -> None:
        last = self.model.last_batch(producer_id)
        if last is None or self.may_be_forgotten(producer_id):
            return
        sequence = self.model.next_sequence(producer_id) + ahead
        with pytest.raises(KafkaError) as refused:
            append(
                self.log,
                batch(producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True),
            )
        assert refused.value.error is Error.OUT_OF_ORDER_SEQUENCE_NUMBER

    @rule(producer_id=PRODUCERS, commits=st.booleans())
    def end_transaction(self, producer_id: int, commits: bool) -> None:
        if self.may_be_forgotten(producer_id):
            return
        data = marker(commits, producer_id=producer_id, timestamp=self.clock_ms)
        append(self.log, data, origin=AppendOrigin.COORDINATOR)
        stored = Stored(self.model.end_offset, (self.clock_ms,), (), producer_id, -1, True, commits)
        self.model.add(stored)

    # ---- all else

    @rule()
    def roll(self) -> None:
        self.log.roll(self.clock_ms)

    @rule(clean=st.booleans(), recovery=FRACTIONS)
    def restart(self, clean: bool, recovery: float) -> None:
        self.log.close(clean=clean)
        point = int(self.log.recovery_point * recovery)
        self.log = open_log(
            self.directory,
            clean=clean,
            recovery_point=point,
            log_start_offset=self.model.log_start_offset,
            **self.config,
        )
        self.log.update_high_watermark(self.log.log_end_offset)
        self.check_everything()

    @rule(where=FRACTIONS)
    def delete_records(self, where: float) -> None:
        # not into an open transaction: where that begins is forgotten with its first records, as in Kafka
        span = self.model.last_stable_offset - self.model.log_start_offset
        offset = self.model.log_start_offset + int(span * where)
        assert self.log.delete_records_before(offset) == offset
        self.model.log_start_offset = offset

    @precondition(lambda self: not self.model.open_transactions())
    @rule(age_ms=st.integers(0, 3000))
    def apply_retention(self, age_ms: int) -> None:
        self.log.apply_retention(self.clock_ms + age_ms)
        assert self.log.log_start_offset >= self.model.log_start_offset
        self.model.log_start_offset = self.log.log_start_offset

    @rule(where=FRACTIONS)
    def truncate(self, where: float) -> None:
        span = self.model.end_offset - self.model.log_start_offset
        offset = self.model.log_start_offset + int(span * where)
        ends = [stored.next_offset for stored in self.model.batches if stored.next_offset <= offset]
        at = max(ends, default=self.model.log_start_offset)
        after = LogModel(list(self.model.batches), self.model.log_start_offset, self.model.end_offset)
        after.truncate_to(at)
        # nor so that a transaction is open again of which the first records are gone
        first = min(after.open_transactions().values(), default=at)
        if at >= self.model.log_start_offset and first >= self.model.log_start_offset:
            self.log.truncate_to(at, self.clock_ms)
            self.model = after

    # ---- what always holds

    @invariant()
    def offsets_agree(self) -> None:
        if not hasattr(self, "log"):
            return
        assert self.log.log_end_offset == self.model.end_offset
        assert self.log.log_start_offset == self.model.log_start_offset
        assert self.log.last_stable_offset == self.model.last_stable_offset

    def check_everything(self) -> None:
        assert stored_batches(self.log) == self.model.readable()
        assert committed_values(self.log) == self.model.committed_values()
        for timestamp_ms in range(NOW_MS - 100, self.clock_ms + 100, 37):
            found = self.log.offset_for_timestamp(timestamp_ms)
            expected = self.model.offset_for_timestamp(timestamp_ms, self.log.base_offsets)
            assert (found and (found.timestamp_ms, found.offset)) == expected


LogMachine.TestCase.settings = settings(
    max_examples=examples(40),
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestLogMachine = LogMachine.TestCase


@pytest.fixture(autouse=True)
def page_cache_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda _descriptor: None)
