"""The flights pipeline, killed at random, and what came out beside what should have.

`python -m tests.spark.kills` is the long form, over the whole year and with Spark's own sink beside; `test_kills.py`
the short one.
"""
