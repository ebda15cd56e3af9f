"""barnabas beside Apache Kafka on the same machine, in turns: `python -m tests.bench`."""
