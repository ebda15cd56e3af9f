"""A partition as all floors name it."""

TopicPartition = tuple[str, int]
"""Topic and index (Kafka: `TopicPartition`)."""
