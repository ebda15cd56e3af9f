"""A small client that waits for each answer: the commands' questions to any Kafka."""
