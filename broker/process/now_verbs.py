"""Makes things happen now, for a test, that otherwise happen by the clock: a transaction times out, a member's session
ends, a producer is forgotten, retention and compaction run. Each runs the same code as its timer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from broker.process.questions import QuestionError, broker_of, led_here, number_in, refusal, text_in
from coordinator.transaction.states import STATE_NAMES
from protocol.errors import KafkaError
from protocol.waiting import together
from storage.log.log_config import LONG_MAX

if TYPE_CHECKING:
    from broker.environment.movable_time import MovableTime
    from broker.process.questions import AnyNode, Question
    from broker.replicas.partition import Partition
    from broker.server import Server
    from protocol.waiting import Waiting


async def _expire_transaction(node: AnyNode, question: Question, time: MovableTime) -> Any:
    """`transactional_id`: abort its transaction as if it had timed out → its `state`. Only its coordinator answers."""
    name = text_in(question, "transactional_id")
    shard = broker_of(node).transactions.shard_of(name)
    metadata = shard.describe(name)
    if not shard.expiry.may_time_out(metadata):
        raise QuestionError(f"{name} has no open transaction: it is {STATE_NAMES[metadata.state]}")
    error = await shard.expiry.abort(metadata)
    if error is not None:
        raise refusal(error.error, error.message)
    return {"state": STATE_NAMES[metadata.state]}


async def _expire_member(node: AnyNode, question: Question, time: MovableTime) -> Any:
    """`group`, `member`: end the session of the member with this id or instance id → its id. Only the group's
    coordinator answers."""
    group_id, said = text_in(question, "group"), text_in(question, "member")
    shard = broker_of(node).groups.shard_of(group_id)
    group = shard.groups.find(group_id)
    static: Mapping[str, str] = getattr(group, "static_members", {})
    member_id = static.get(said, said)
    shard.expire_member(group_id, member_id)
    await time.moved(0)  # runs what is due now
    return member_id


async def _expire_producer(node: AnyNode, question: Question, time: MovableTime) -> Any:
    """`producer_id`: forget the producer, as if it had been silent for `producer.id.expiration.ms` → the partitions
    here that have forgotten it. A producer with an open transaction stays."""
    producer_id = number_in(question, "producer_id", -1, LONG_MAX)
    logs = [each.log for each in broker_of(node).partitions.all()]
    return sorted([log.topic, log.partition] for log in logs if log.producers.expire_now(producer_id))


async def _run_retention(node: AnyNode, question: Question, time: MovableTime) -> Any:
    """`topic`: run retention in its partitions that this node leads → the start offset of each, by number."""
    broker = broker_of(node)
    topic = text_in(question, "topic")
    led = led_here(broker, topic)
    if not led:
        raise QuestionError(f"no partition of {topic} is led here")
    broker.housekeeping.retain_now([each.log for each in led])
    await time.moved(0)  # runs what is due now
    return {str(each.log.partition): each.log.log_start_offset for each in led}


async def _run_compaction(node: AnyNode, question: Question, time: MovableTime) -> Any:
    """`topic`: compact its replicas here, the active segment as well, whatever ratios and lags are set → the numbers of
    their partitions."""
    broker = broker_of(node)
    topic = text_in(question, "topic")
    hosted = broker.partitions.by_name.get(topic)
    if hosted is None:
        raise QuestionError(f"no partition of {topic} is here")
    if not hosted.config.compacts:
        raise QuestionError(f"{topic} isn't compacted: see its cleanup.policy")
    replicas = [hosted.partitions[index] for index in sorted(hosted.partitions)]
    for error in await together([_compacted(broker, each) for each in replicas]):
        if isinstance(error, KafkaError):
            raise refusal(error.error, error.message)
        if error is not None:
            raise QuestionError(str(error))
    return [each.log.partition for each in replicas]


async def _compacted(node: Server, partition: Partition) -> Exception | None:
    if not partition.log.created:
        return None  # nothing was ever written
    try:
        await node.cleaner.clean_now(partition, roll=True)
    except Exception as error:
        return error
    return None


NOW_VERBS: Mapping[str, Callable[[AnyNode, Question, MovableTime], Waiting[Any]]] = {
    "expire_member": _expire_member,
    "expire_producer": _expire_producer,
    "expire_transaction": _expire_transaction,
    "run_compaction": _run_compaction,
    "run_retention": _run_retention,
}
"""The questions by name, as `broker.process.control.CLUSTER_QUESTIONS`, with the node's time. They may also raise
KafkaError."""
