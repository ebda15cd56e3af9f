"""Which Spark the sink runs on."""

from __future__ import annotations

from barnabas.spark.errors import UnsupportedSparkError

OLDEST = (4, 0)


def check_spark() -> None:
    """Raises UnsupportedSparkError where the PySpark that is installed is too old; none at all is for others to say."""
    try:
        from pyspark import __version__ as version
    except ImportError:
        return
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        raise UnsupportedSparkError(
            f"the sink needs PySpark {OLDEST[0]}.{OLDEST[1]} or later, and this is {version}: "
            "pip install --upgrade 'pyspark[sql]'"
        )
