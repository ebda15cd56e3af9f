"""Scripts for a single broker, played to three: they talk to broker 1, which leads."""

from __future__ import annotations

from fnmatch import fnmatchcase

_PLACED = "brokers place its topics at random, and it speaks to one of them"
_TIMED_OUT = (
    "Kafka's coordinator waits for its records' replicas no longer than a transaction may take: here 1 ms"
)
_FORGOTTEN = "whether Kafka keeps the group of a refused join hangs on what is being replicated"

LEFT_OUT: dict[str, str] = {
    "rights*/*": "each broker asks the same authorizer, and brokers of a cluster don't sign in to each other here",
    "compaction/*": "each replica cleans its own log in its own time, so their bytes are equal only now and then",
    "fetch_waiting/a_topic_created_while_it_is_waited_for": "a topic of three replicas may take longer than its wait",
    "consumer_groups_migration/that_are_not_upgraded": _FORGOTTEN,
    "groups_joining/refusals": _FORGOTTEN,
    "log_dirs/move_replicas": "it is about the log directories of one broker",
    "log_dirs/place_replicas": "it is about the log directories of one broker",
    "metadata/creation": _PLACED,
    "metadata/internal_topics": "the internal topics were made by hand, so that broker 1 leads them",
    "quorum/moved_into_the_log": "the scripts behind it would find them there",
    "reconfiguration/in_steps": "it is written for the threads of one listener, and these brokers have two",
    "topics/a_topic_grows": _PLACED,
    "topics/create_partitions": _PLACED,
    "transactions_init/ids_and_timeouts": _TIMED_OUT,
    "transactions_loaded/last_epochs": "transactions that are found prepared get markers in the order of a hash map",
    "transactions_loaded/records_of_every_kind": _TIMED_OUT,
    "transactions_timeouts/after_the_timeout": _TIMED_OUT,
    "topics_deleted/deleted_and_created_again": _PLACED,
}
"""Why scripts aren't played to a cluster. Keys are scripts, with * for anything."""


def is_left_out(script: str) -> bool:
    return any(fnmatchcase(script, pattern) for pattern in LEFT_OUT)
