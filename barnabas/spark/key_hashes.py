"""Kafka's hash of a key as a column of Spark's.

Where Apache Kafka's client is on Spark's class path, as Spark's own connector brings it along, Spark's generated code
calls the client's own murmur2, and no row leaves the JVM for it. Otherwise a Python UDF hashes the keys; that alone
makes keyed batches cost half as much again. Spark has no public way to call a static method on bytes, so this reaches
into Catalyst; whatever there has moved in another release is answered with the UDF.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from barnabas.spark.catalyst import catalyst

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

CLASS = "org.apache.kafka.common.utils.Utils"

log = logging.getLogger(__name__)


def hashes(spark: SparkSession, key: Column) -> Column:
    """An int column: murmur2, signed as Java has it, of a string or binary column; null of null."""
    binary = key.cast("binary")
    try:
        return in_java(spark, binary)
    except Exception as error:  # of py4j: the class isn't there, or Catalyst is another one
        log.debug("keys are hashed in Python, because Spark can't call %s: %s", CLASS, error)
        return in_python(binary)


def in_java(spark: SparkSession, key: Column) -> Column:
    """As `hashes`, of a binary column, by Kafka's client."""
    return catalyst(spark).static_int(CLASS, "murmur2", key)


def in_python(key: Column) -> Column:
    """As `hashes`, of a binary column, by `partitioner.murmur2`."""
    from pyspark.sql.pandas import functions

    from barnabas.spark.key_hashes_udf import murmur2

    make: Any = functions.pandas_udf  # its overloads are typed by aliases that know of no such function
    hashed: Column = make(murmur2, "int")(key)
    return hashed
