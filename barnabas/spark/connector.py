"""Spark's own Kafka connector: where its jars come from, what to do if something is missing, and which Spark the sink
runs on.

`python -m barnabas.spark.connector` fetches the jars if they aren't there yet.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnabas.spark.errors import UnsupportedSparkError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


OLDEST = (4, 0)


def check_spark() -> None:
    """Raise UnsupportedSparkError if the installed PySpark is too old. Does nothing if there is none."""
    try:
        from pyspark import __version__ as version
    except ImportError:
        return
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        raise UnsupportedSparkError(
            f"the sink needs PySpark {OLDEST[0]}.{OLDEST[1]} or later, and this is {version}: "
            "pip install --upgrade 'pyspark[sql]'"
        )


# --- The jars -----------------------------------------------------------------------------------------------

GROUP, ARTIFACT = "org.apache.spark", "spark-sql-kafka-0-10_2.13"
# For each line of Spark, the connector release that all its releases were tried with. Not every release has one whose
# dependencies can all be fetched: 4.0.5, 4.1.0 and 4.3.0 don't.
TRIED = {"4.0": "4.0.0", "4.1": "4.1.1", "4.2": "4.2.0", "4.3": "4.2.0"}
# The folder into which Spark 4's Ivy fetches.
IVY_JARS = Path("~/.ivy2.5.2/jars")


class MissingError(RuntimeError):
    """Spark needs something that this machine lacks. The text says how to get it."""


def package() -> str:
    """Return the connector for the installed pyspark, as `spark.jars.packages` takes it.

    For an untried line of Spark (not in `TRIED`), it is the connector of the line's first release.
    """
    import pyspark

    line = ".".join(pyspark.__version__.split(".")[:2])
    return f"{GROUP}:{ARTIFACT}:{TRIED.get(line, line + '.0')}"


def session(name: str, master: str = "local[*]", **settings: Any) -> SparkSession:
    """A Spark session with the connector on this machine. Raises MissingError.

    settings: Spark's own, by name; they win over those made here.
    """
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        raise MissingError(
            "Spark needs Java 17 or later, and there is no `java` on the path. Debian and Ubuntu have it as "
            "openjdk-17-jre-headless, Homebrew as openjdk@17."
        )
    try:
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise MissingError("pyspark is not installed: pip install 'barnabas[spark]'") from error
    try:
        check_spark()
    except UnsupportedSparkError as error:
        raise MissingError(str(error)) from error
    # By default Spark takes the first python3 on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    quiet = {
        "spark.jars.packages": package(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        # The default of 200 is for clusters.
        "spark.sql.shuffle.partitions": "4",
    }
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in {**quiet, **settings}.items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise MissingError(
            f"Spark did not start with its Kafka connector, {package()}; see its output above. Its jars "
            f"are fetched once from Maven Central into {IVY_JARS.parent}. If that can't be reached, copy the folder "
            "from a machine that can, or name a mirror by Spark's setting spark.jars.ivySettings. Spark 4 runs on "
            "Java 17 and 21."
        ) from error
    _keep_jars_from_python(spark.sparkContext)
    return spark


def _keep_jars_from_python(context: SparkContext) -> None:
    """Take the packages' jars off Python's path: only Java needs them.

    Spark puts them there, too. Each worker then reads the directory of each jar again for every task,
    30,000 names in all, which takes longer than most of our tasks.
    """
    context._python_includes = [name for name in context._python_includes or () if not name.endswith(".jar")]
    for path in [path for path in sys.path if path.endswith(".jar")]:
        sys.path.remove(path)
        sys.path_importer_cache.pop(path, None)


def is_fetched() -> bool:
    """True if the connector's jars are there already."""
    version = package().rpartition(":")[2]
    return (IVY_JARS.expanduser() / f"{GROUP}_{ARTIFACT}-{version}.jar").exists()


@contextlib.contextmanager
def printing_to(log: Path) -> Iterator[None]:
    """Send the output of everything that is started in the block to a file. Spark prints much, and Ivy more."""
    sys.stdout.flush()
    kept = [os.dup(1), os.dup(2)]
    with log.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        for number, descriptor in enumerate(kept, 1):
            os.dup2(descriptor, number)
            os.close(descriptor)


def _fetch() -> None:
    """Fetch the jars. Raises MissingError, after showing the output."""
    print(f"Fetching {package()} with what it needs (60 MB) into {IVY_JARS.parent}, once.", flush=True)
    with tempfile.TemporaryDirectory(prefix="barnabas-") as folder:
        log = Path(folder) / "log"
        try:
            with printing_to(log):
                session("fetch").stop()
        except MissingError:
            print(log.read_text("utf-8", errors="replace"), end="", file=sys.stderr, flush=True)
            raise
    print(f"Fetched {package()}.", flush=True)


def main() -> int:
    """Fetch the jars. Return 0 once they are there, 2 if they can't be fetched."""
    try:
        if not is_fetched():
            _fetch()
    except MissingError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
