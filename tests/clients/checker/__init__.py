"""A workload of transactions under crashes, and a checker of what its clients saw: Jepsen's tests for Kafka, in small.

Keys are partitions, values are unique numbers. Each client process owns a transactional producer and a read_committed
consumer; a transaction is a few sends and polls, and some abort. Clients are killed, stopped and superseded, the broker
is killed. Afterwards a fresh consumer reads everything, and the history is searched for anomalies. `make checker` runs
it for longer than the tests do.

Apache Kafka 4.3.1 is not always without one (`--kafka`): a node that was killed with a transaction open, and for which
the metadata log it reads at its start says for a moment that partitions have no leader, takes these for deleted when it
aborts the transaction for its timeout. It logs CompleteAbort with no marker written; the next commit of that producer
commits the aborted records, or their offsets stay pending for ever.
"""
