"""The records of a batch, as far as the cleaner looks at them: offset, key, and whether the value is null."""

from protocol.records.batch import CorruptRecordError
from protocol.wire.primitives import VarintTooLongError, read_varint

RECORDS_AT_ONCE = 1000
"""Some milliseconds' worth."""

KeyedRecord = tuple[int, int, bytes | None, int]
"""Where the record ends, its offset delta, its key, and 1 where its value is null. A delta below 0, which is nonsense
but may be there, counts as 0, so that no record seems to lie before its batch."""


def read_keyed_records(data: bytes, pos: int, count: int) -> list[KeyedRecord]:
    """The next `count` records of `data`, uncompressed, from `pos` on. Raises `CorruptRecordError`.

    The batch was proven by its CRC, and by the checks of who appended it: so what isn't needed isn't looked at.
    """
    records: list[KeyedRecord] = []
    limit = len(data)
    try:
        for _ in range(count):
            byte = data[pos]
            high = data[pos + 1]
            if byte < 0x80:
                at = pos + 1
                end = at + (byte >> 1)
            elif high < 0x80:
                at = pos + 2
                end = at + (high << 6) + (byte >> 1) - 64
            else:
                size, at = read_varint(data, pos)
                end = at + size
            # behind its attributes: the timestamp delta
            at += 1
            while data[at] > 0x7F:
                at += 1
            at += 1
            byte = data[at]
            if byte < 0x80:
                at += 1
                delta = 0 if byte & 1 else byte >> 1
            else:
                delta, at = read_varint(data, at)
                if delta < 0:
                    delta = 0
            byte = data[at]
            at += 1
            if byte > 0x7F:
                size, at = read_varint(data, at - 1)
                byte = 1 if size < 0 else size << 1
            key = None
            if not byte & 1:
                size = byte >> 1
                key = data[at : at + size]
                at += size
            # the sizes of the value and of the headers take at least a byte each
            if not at + 1 < end <= limit:
                raise CorruptRecordError("a record that doesn't fit its size")
            records.append((end, delta, key, data[at] & 1))
            pos = end
    except (IndexError, VarintTooLongError) as error:
        raise CorruptRecordError(f"a record doesn't parse: {error}") from error
    return records
