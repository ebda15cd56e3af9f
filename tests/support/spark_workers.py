"""What Spark forks the tests' Python workers from, by its setting `spark.python.daemon.module`: its daemon, made quick.

With every task a worker forgets what it knows of where modules are. Python then reads the directory of an archive anew,
and of Spark's own archives it does so once for each package: 25,000 names, which takes longer than most of our tasks.
The same modules are installed as files. And what our tasks import is imported ahead of the fork, for every worker.
"""

from __future__ import annotations

import sys
import warnings

ARCHIVES = (".zip", ".jar")

sys.path = [path for path in sys.path if not path.endswith(ARCHIVES)]
for known in [path for path in sys.path_importer_cache if path.endswith(ARCHIVES)]:
    del sys.path_importer_cache[known]

# kafka-python reads its schemas through a deprecated function while it is imported.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import barnabas.spark.tasks  # noqa: F401

from pyspark import daemon  # noqa: E402

if __name__ == "__main__":
    daemon.manager()
