"""A `.snapshot` file: the producers of a partition as of the offset in its name (KIP-98).

The file is {version int16, crc uint32, entries}; the CRC-32C covers what follows it.
"""

from protocol.wire.schema import Message, Struct, array, int16, int32, int64, uint32


class ProducerEntry(Struct):
    """The producer's last batch: `last_sequence`, `last_offset`, and `offset_delta` back to its first
    record.
    `coordinator_epoch` is that of its last marker; `current_txn_first_offset` -1 without an open
    transaction.
    """

    producer_id: int = int64("1")
    epoch: int = int16("1")
    last_sequence: int = int32("1")
    last_offset: int = int64("1")
    offset_delta: int = int32("1")
    timestamp: int = int64("1")
    coordinator_epoch: int = int32("1")
    current_txn_first_offset: int = int64("1")


class ProducerSnapshot(Message, versions="1"):
    crc: int = uint32("1")
    producer_entries: list[ProducerEntry] = array(ProducerEntry, "1")
