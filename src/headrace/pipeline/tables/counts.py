"""Adding up counts by reason (`{"lag": 3}`): Spark has no sum of maps."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F


def sum_by_reason(name: str) -> Column:
    """The maps of a group as one map, with the reasons in order: an aggregate."""
    pairs = F.flatten(F.collect_list(F.map_entries(F.col(name))))
    reasons = F.array_sort(F.array_distinct(F.transform(pairs, lambda pair: pair["key"])))
    return F.map_from_arrays(reasons, F.transform(reasons, lambda reason: _total(pairs, reason))).alias(name)


def _total(pairs: Column, reason: Column) -> Column:
    own = F.filter(pairs, lambda pair: pair["key"] == reason)
    return F.aggregate(own, F.lit(0).cast("long"), lambda total, pair: total + pair["value"])
