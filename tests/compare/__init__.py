"""Raw requests to Apache Kafka and to barnabas, and their answers side by side. `README.md` beside this says how."""
