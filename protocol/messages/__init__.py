"""The messages of Kafka 4.4 as a broker meets them, one file per family of APIs or records.

Nothing is imported here, so that using one family doesn't load them all: `protocol.apis` finds the family of
an API.
"""
