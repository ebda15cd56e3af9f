"""What happens now, and else with time: `broker.expire_transaction("payer")`.

`broker.process.now_verbs` (in the broker's process) has them; each goes the way that its timer goes.
"""

from __future__ import annotations

from barnabas.looking import TopicPartition, WithLooking


class WithNowVerbs(WithLooking):
    """What a broker and a cluster have in common for tests that don't wait for timers."""

    def expire_transaction(self, transactional_id: str) -> None:
        """Its open transaction has outlived its timeout: its producer is fenced, and it is aborted when this returns.
        Raises LookupError where there is none."""
        self._ask_whoever({"ask": "expire_transaction", "transactional_id": transactional_id})

        def is_aborted() -> bool:
            found = [each for each in self.transactions() if each.transactional_id == transactional_id]
            return bool(found) and not found[0].is_open

        self.wait_until(is_aborted, what=f"the transaction of {transactional_id} is aborted")

    def expire_member(self, group: str, member: str) -> None:
        """The session of a member is over, by its id or that of its instance: it is gone when this returns, and the
        others share what it had. Of groups of each kind. Raises LookupError where there is none."""
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
        """Nothing has been heard of this producer for `producer.id.expiration.ms`: the partitions that have forgotten
        it. One whose transaction is open there stays, as by the clock. Raises LookupError where nobody knows it."""
        told = self._ask_all({"ask": "expire_producer", "producer_id": producer_id})
        forgotten = sorted({(topic, partition) for found in told for topic, partition in found})
        if not forgotten:
            raise LookupError(
                f"no partition knows producer id {producer_id}, or its transaction is open there"
            )
        return forgotten

    def run_retention(self, topic: str) -> dict[int, int]:
        """What the topic's retention says goes now; where each partition begins then. Raises LookupError."""
        told = self._ask_all({"ask": "run_retention", "topic": topic})
        return {int(index): start for found in told for index, start in sorted(found.items())}

    def run_compaction(self, topic: str) -> None:
        """Each replica of the topic is compacted when this returns, the segment that is written to with the others.
        Raises LookupError where there is no such topic, or it isn't compacted."""
        self._ask_all({"ask": "run_compaction", "topic": topic})
