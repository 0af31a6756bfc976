"""Spark's functions, looked up once: a third of the calls that it takes to make a plan.

`F.max("x")` asks the JVM for the class of functions, then whether it has `max`, then calls it, every time. Owns what is
remembered of the first two answers, which never change. Where pyspark comes to ask in another way, nothing is
remembered and everything works as before.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

_FUNCTIONS = "org.apache.spark.sql.functions"


class _Remembered:
    def __init__(self, java_class: Any) -> None:
        self._java_class = java_class

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._java_class, name)
        setattr(self, name, found)  # so that it is not asked for here again
        return found


def remember_functions(spark: SparkSession) -> None:
    """For all sessions of this JVM. None over Spark Connect, where a plan is not made by calls."""
    jvm: Any = spark.sparkContext._jvm
    if not isinstance(vars(jvm).get(_FUNCTIONS), _Remembered):
        setattr(jvm, _FUNCTIONS, _Remembered(getattr(jvm, _FUNCTIONS)))
