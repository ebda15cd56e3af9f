"""Kafka's hash of a key as a function for `pandas_udf`. It has a module of its own because Spark looks up its
annotations by module."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa

from barnabas.spark import arrow_batches


def murmur2(keys: pd.Series) -> pd.Series:
    offsets, data = arrow_batches.spans(pa.array(keys, pa.binary(), from_pandas=True))
    found = arrow_batches.murmur2(data, offsets).view(np.int32)
    return pd.Series(pd.arrays.IntegerArray(found, keys.isna().to_numpy()))
