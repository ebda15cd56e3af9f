"""A workload of transactions under crashes, and a checker of what its clients saw: Jepsen's tests for Kafka, in small.

Keys are partitions, values are unique numbers. Most client processes own a transactional producer and a read_committed
consumer; a transaction is a few sends and polls, and some abort. Beside them groups of the classic and of the consumer
protocol copy what there is, or read it and commit their offsets, and idempotent producers send without transactions.
They are of librdkafka, kafka-python, aiokafka and Java. Clients are killed, stopped and superseded, and so are brokers
and their controller. Afterwards nothing may be open, each group goes on to the end, a fresh consumer reads everything,
and the history is searched for anomalies. `make checker` runs it for longer than the tests do.

Apache Kafka 4.3.1 is not always without one (`--kafka`): a node that was killed with a transaction open, and for which
the metadata log it reads at its start says for a moment that partitions have no leader, takes these for deleted when it
aborts the transaction for its timeout. It logs CompleteAbort with no marker written; the next commit of that producer
commits the aborted records, or their offsets stay pending for ever.
"""
