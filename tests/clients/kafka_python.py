"""kafka-python, imported past a warning: it reads its schemas in a way that Python 3.11 deprecates."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    import kafka.errors
    from kafka.admin import NewPartitions, NewTopic

__all__ = ["NewPartitions", "NewTopic", "kafka"]
