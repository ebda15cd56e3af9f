"""The sink on clusters: a master and workers of Spark's own, and each way that packages come to the executors.

`python -m tests.spark.clusters` tries them all, with the three jobs of `tests.spark.versions`.
"""
