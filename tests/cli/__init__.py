"""The command line for people, against barnabas and against Apache Kafka, one node and three."""
