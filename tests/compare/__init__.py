"""Raw requests to Apache Kafka and to barnabas, and their answers side by side. See `README.md` beside this."""
