"""Folders handed from Apache Kafka to barnabas and back."""
