"""Five jobs of the kinds that Spark's users write, killed at random, and what came out beside what should have.

`python -m tests.spark.jobs` is the long form, on both brokers; `test_jobs.py` the short one.
"""
