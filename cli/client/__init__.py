"""A small client that waits for each answer: what the commands ask of a Kafka, whichever it is."""
