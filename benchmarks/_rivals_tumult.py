"""One release of Tumult Analytics, in a separate interpreter with Spark and an old NumPy.

    PYTHON benchmarks/_rivals_tumult.py IN.npz OUT.npz EPSILON DELTA KEYS PER_KEY

``IN`` has ``unit`` and ``key`` of all records so far, ``OUT`` will have ``key``, ``value`` and
``seconds`` of processor time. Half of ε and all of δ find the keys, the rest of ε counts.
"""

from __future__ import annotations

import os
import resource
import sys

os.environ["PYSPARK_PYTHON"] = sys.executable

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from tmlt.analytics import (
    AddRowsWithID,
    ApproxDPBudget,
    KeySet,
    MaxGroupsPerID,
    MaxRowsPerGroupPerID,
    QueryBuilder,
    Session,
)


def main() -> None:
    source, target, *numbers = sys.argv[1:]
    epsilon, delta, keys, per_key = (float(one) for one in numbers)
    options = {"spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false"}
    builder = SparkSession.builder.master("local[1]")
    for name, value in options.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    with np.load(source) as columns:
        records = pd.DataFrame({n: columns[n].astype("int64") for n in ("unit", "key")})
    session = Session.from_dataframe(
        ApproxDPBudget(epsilon, delta), "records", spark.createDataFrame(records),
        protected_change=AddRowsWithID("unit"),
    )  # fmt: skip
    bounded = QueryBuilder("records").enforce(MaxGroupsPerID("key", int(keys)))
    bounded = bounded.enforce(MaxRowsPerGroupPerID("key", int(per_key)))
    half = ApproxDPBudget(epsilon / 2, delta)
    found = session.evaluate(bounded.get_groups(["key"]), half).cache()
    counts = bounded.groupby(KeySet.from_dataframe(found)).count()
    out = session.evaluate(counts, ApproxDPBudget(epsilon / 2, 0)).toPandas()
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    np.savez(
        target, key=out["key"].to_numpy(), value=out["count"].to_numpy(),
        seconds=sum(one.ru_utime + one.ru_stime for one in used),
    )  # fmt: skip


if __name__ == "__main__":
    main()
