"""The process from which Spark forks the tests' Python workers, by its setting `spark.python.daemon.module`: Spark's
own daemon, made faster.

For each task, a worker forgets where modules are. Python then reads an archive's directory again, for Spark's own
archives once for each package. That is 25,000 names, which take longer than most of our tasks. The same modules are
installed as files. And what our tasks need is imported before the fork, for every worker.
"""

from __future__ import annotations

import sys
import warnings

ARCHIVES = (".zip", ".jar")

sys.path = [path for path in sys.path if not path.endswith(ARCHIVES)]
for known in [path for path in sys.path_importer_cache if path.endswith(ARCHIVES)]:
    del sys.path_importer_cache[known]

# kafka-python uses a deprecated function to read its schemas during the import.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import barnabas.spark.tasks  # noqa: F401

from pyspark import daemon  # noqa: E402

if __name__ == "__main__":
    daemon.manager()
