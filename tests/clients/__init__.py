"""Real clients against the broker's process. Each test does one thing that a user of that client does.

`BARNABAS_CLIENTS_BOOTSTRAP=host:port` sends them to a broker that runs already: they pass against
Apache Kafka 4.3, and that is how their demands are kept Kafka's. (Kafka may answer an admin before the
change can be seen, which now and then fails a test there; here what was answered holds.)
"""
