"""Make things happen now that otherwise happen by the clock: `broker.expire_transaction("payer")`.

`broker.process.now_verbs` (in the broker's process) does the work. Each verb does what its timer would do.
"""

from __future__ import annotations

from barnabas.looking import TopicPartition, WithLooking


class WithNowVerbs(WithLooking):
    """Methods of a broker and a cluster for tests that don't wait for timers."""

    def expire_transaction(self, transactional_id: str) -> None:
        """Time out its open transaction: when this returns, the producer is fenced and the transaction is aborted.
        Raises LookupError if there is none."""
        self._ask_whoever({"ask": "expire_transaction", "transactional_id": transactional_id})

        def is_aborted() -> bool:
            found = [each for each in self.transactions() if each.transactional_id == transactional_id]
            return bool(found) and not found[0].is_open

        self.wait_until(is_aborted, what=f"the transaction of {transactional_id} is aborted")

    def expire_member(self, group: str, member: str) -> None:
        """Time out the session of a member, named by its id or its `group.instance.id`. When this returns it is gone,
        and the others share its partitions. It works for groups of every kind. Raises LookupError if there is none."""
        member_id = self._ask_whoever({"ask": "expire_member", "group": group, "member": member})

        def is_gone() -> bool:
            return not any(
                each.member_id == member_id
                for found in self.groups()
                if found.group_id == group
                for each in found.members
            )

        self.wait_until(is_gone, what=f"{member} is no member of {group}")

    def expire_producer(self, producer_id: int) -> list[TopicPartition]:
        """Forget a producer, as after `producer.id.expiration.ms` without a record. Returns the partitions that have
        forgotten it; a partition where its transaction is open doesn't. Raises LookupError if none knows it."""
        told = self._ask_all({"ask": "expire_producer", "producer_id": producer_id})
        forgotten = sorted({(topic, partition) for found in told for topic, partition in found})
        if not forgotten:
            raise LookupError(
                f"no partition knows producer id {producer_id}, or its transaction is open there"
            )
        return forgotten

    def run_retention(self, topic: str) -> dict[int, int]:
        """Delete now what the topic's retention says. Returns where each partition begins then. Raises LookupError."""
        told = self._ask_all({"ask": "run_retention", "topic": topic})
        return {int(index): start for found in told for index, start in sorted(found.items())}

    def run_compaction(self, topic: str) -> None:
        """Compact each replica of the topic, the active segment included. It is done when this returns. Raises
        LookupError if there is no such topic, or it isn't compacted."""
        self._ask_all({"ask": "run_compaction", "topic": topic})
