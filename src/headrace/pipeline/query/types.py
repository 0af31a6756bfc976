"""The types of a lake's columns, from the words of Spark's JSON that the lake keeps to those of SQL."""

from __future__ import annotations

from typing import Any

_SPARK = {"long": "bigint", "integer": "int"}  # the rest are called the same in SQL
_DUCKDB = {"string": "VARCHAR", "timestamp": "TIMESTAMP WITH TIME ZONE", "long": "BIGINT"}


def spark_type(kind: Any) -> str:
    """As in docs/pipeline.md: `array<struct<name:string,measured:double>>`."""
    if isinstance(kind, str):
        return _SPARK.get(kind, kind)
    if kind["type"] == "array":
        return f"array<{spark_type(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{spark_type(kind['keyType'])},{spark_type(kind['valueType'])}>"
    fields = ",".join(f"{field['name']}:{spark_type(field['type'])}" for field in kind["fields"])
    return f"struct<{fields}>"


def duckdb_type(kind: Any) -> str:
    """The same for DuckDB: `STRUCT("name" VARCHAR, "measured" double)[]`."""
    if isinstance(kind, str):
        return _DUCKDB.get(kind, kind)
    if kind["type"] == "array":
        return f"{duckdb_type(kind['elementType'])}[]"
    if kind["type"] == "map":
        return f"MAP({duckdb_type(kind['keyType'])}, {duckdb_type(kind['valueType'])})"
    fields = ", ".join(f"{identifier(field['name'])} {duckdb_type(field['type'])}" for field in kind["fields"])
    return f"STRUCT({fields})"


def identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
