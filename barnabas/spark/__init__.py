"""An exactly-once Kafka sink for PySpark, for Apache Kafka and barnabas alike.

    from barnabas.spark import ExactlyOnceKafkaSink

    sink = ExactlyOnceKafkaSink("localhost:9092", query="orders-enriched", topic="out")
    query = df.writeStream.foreachBatch(sink).option("checkpointLocation", path).start()

Needs the extra `spark` (`pip install 'barnabas[spark]'`), on the driver and on the executors.
"""

from barnabas.spark.errors import SinkError
from barnabas.spark.sink import BatchReport, ExactlyOnceKafkaSink, PartitionReport

__all__ = ["BatchReport", "ExactlyOnceKafkaSink", "PartitionReport", "SinkError"]
