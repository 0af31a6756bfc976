"""Columns: how a table declares them, and the one wide row that every event of the contract fits into.

Owns the way from `telemetry.events` to Spark's types. What the rows of a table mean is that table's business.
"""

from __future__ import annotations

from types import UnionType
from typing import Any, get_args, get_origin

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace.telemetry.events import EVENT_TYPES, field_types

BOOLEAN, DOUBLE, INTEGER, LONG, STRING, TIMESTAMP = (
    BooleanType(),
    DoubleType(),
    IntegerType(),
    LongType(),
    StringType(),
    TimestampType(),
)
COUNTS = MapType(STRING, LONG)  # how many, by reason

ENVELOPE = (("v", LONG), ("node", STRING), ("boot", STRING), ("seq", LONG), ("time_ms", LONG), ("type", STRING))
ENVELOPE_NAMES = tuple(name for name, _ in ENVELOPE)

_TYPES: dict[Any, DataType] = {int: LONG, float: DOUBLE, str: STRING, bool: BOOLEAN, dict[str, int]: COUNTS}


def table(*columns: tuple[str, DataType, str]) -> StructType:
    """A table's columns: name, type, and what it means. Files hold no promise about nulls, so none is made."""
    return StructType([StructField(name, kind, metadata={"comment": text}) for name, kind, text in columns])


def list_of(**fields: DataType) -> ArrayType:
    return ArrayType(StructType([StructField(name, kind) for name, kind in fields.items()]))


def select_as(rows: DataFrame, schema: StructType) -> DataFrame:
    """Exactly the declared columns, in their order and of their types: the last step of every table."""
    # A cast of each column was nine calls to the JVM, and some to look things up, for 300 columns of a small batch.
    return rows.to(StructType([StructField(field.name, field.dataType) for field in schema.fields]))


def at(time_ms: Column) -> Column:
    """Milliseconds since 1970 as a time."""
    return F.timestamp_millis(time_ms.cast("long"))


def event_schema() -> StructType:
    """The envelope and the union of all events' fields, every one of which may be null."""
    fields: dict[str, DataType] = dict(ENVELOPE)
    for kind in EVENT_TYPES.values():
        for name, hint in field_types(kind).items():
            spark_type = _spark_type(hint)
            if fields.setdefault(name, spark_type) != spark_type:
                raise TypeError(f"{kind.type}.{name} is {spark_type}, expected {fields[name]} as in another event")
    return StructType([StructField(name, kind) for name, kind in fields.items()])


def _spark_type(hint: Any) -> DataType:
    if get_origin(hint) is UnionType:
        (hint,) = (one for one in get_args(hint) if one is not type(None))
    return _TYPES[hint]


EVENTS = event_schema()
