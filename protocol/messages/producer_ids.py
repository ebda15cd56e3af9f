"""InitProducerId (22) for producers, AllocateProducerIds (67) between brokers and the controller.

InitProducerId: v2 flexible, v3 a producer shows its id and epoch to go on after an error (KIP-360), v4
PRODUCER_FENCED (KIP-588), v5 TRANSACTION_ABORTABLE (KIP-890), v6 two-phase commit (KIP-939; unstable, not
advertised). AllocateProducerIds: KIP-730.
"""

from protocol.wire.schema import Message, boolean, int16, int32, int64, string


class InitProducerIdRequest(Message, api_key=22, versions="0-6", flexible="2+"):
    transactional_id: str | None = string("0+", nullable="0+")
    transaction_timeout_ms: int = int32("0+")
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)
    enable2_pc: bool = boolean("6+")
    keep_prepared_txn: bool = boolean("6+")


class InitProducerIdResponse(Message, api_key=22, versions="0-6", flexible="2+"):
    throttle_time_ms: int = int32("0+", ignorable=True)
    error_code: int = int16("0+")
    producer_id: int = int64("0+", default=-1)
    producer_epoch: int = int16("0+")
    ongoing_txn_producer_id: int = int64("6+", default=-1)
    ongoing_txn_producer_epoch: int = int16("6+", default=-1)


class AllocateProducerIdsRequest(Message, api_key=67, versions="0", flexible="0+"):
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)


class AllocateProducerIdsResponse(Message, api_key=67, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    producer_id_start: int = int64("0+")
    producer_id_len: int = int32("0+")
