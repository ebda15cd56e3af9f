"""Five jobs of the kinds that Spark's users write, killed at random. Their output is compared with the expected one.

`python -m tests.spark.jobs` is the long form, on both brokers. `test_jobs.py` is the short one.
"""
