"""Kafka's broker settings as data, by family."""
