"""Fewer calls to the JVM to make a plan: most ask again what was answered before, carry a list, or let go.

`F.max("x")` asks the JVM for the class of functions, then whether it has `max`, then calls it, every time; and a list
of five columns is taken there in seven calls. Owns what is remembered of answers that never change, and how lists go
there. Where pyspark comes to ask in another way, nothing is remembered and everything works as before.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

_MOST_AT_ONCE = 10  # elements that Java's List.of takes without an array


class _Remembered:
    """The methods of a class of the JVM."""

    def __init__(self, java_class: Any) -> None:
        self._java_class = java_class

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._java_class, name)
        setattr(self, name, found)  # so that it is not asked for here again
        return found


class _Functions(_Remembered):
    """Spark's. A column by its name is always the same, and never changes."""

    def __init__(self, java_class: Any) -> None:
        super().__init__(java_class)
        self._col = java_class.col
        self._columns: dict[str, Any] = {}

    def col(self, name: str) -> Any:
        found = self._columns.get(name)
        if found is None:
            found = self._columns[name] = self._col(name)
        return found


class _Lists(_Remembered):
    """What makes Scala's lists of Python's."""

    def __init__(self, java_class: Any, java_list: Any) -> None:
        super().__init__(java_class)
        self._list_of = java_list.of
        self._to_seq = java_class.toSeq

    def toSeq(self, elements: Any) -> Any:
        is_plain = isinstance(elements, list) and len(elements) <= _MOST_AT_ONCE and None not in elements
        return self._to_seq(self._list_of(*elements) if is_plain else elements)


def remember_functions(spark: SparkSession) -> None:
    """For all sessions of this JVM. None over Spark Connect, where a plan is not made by calls."""
    jvm: Any = spark.sparkContext._jvm
    if isinstance(vars(jvm).get("functions"), _Remembered):
        return
    functions = _Functions(jvm.functions)
    for name in ("functions", "org.apache.spark.sql.functions"):  # pyspark asks by both
        setattr(jvm, name, functions)
    jvm.PythonUtils = _Lists(jvm.PythonUtils, jvm.java.util.List)


def keep_objects(spark: SparkSession) -> None:
    """The JVM keeps all that Python has got from it, up to its end: for a short job.

    Else it is told of each object that Python does not need any more, in a call of its own: a third of all calls.
    """
    gateway: Any = spark.sparkContext._gateway
    gateway.gateway_property.enable_memory_management = False
