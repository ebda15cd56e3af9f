"""The sink on every PySpark, Python and kafka-python that it is meant for: the same three jobs in each.

`python -m tests.spark.versions` is the long form, on all of them; `test_versions.py` the short one, on the oldest
PySpark, for the other tests run on the newest.
"""
