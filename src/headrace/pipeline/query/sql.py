"""What a text of SQL asks for, before it runs: that it is one SELECT, and which of the lake's tables it is about.

DuckDB parses it and hands out the tree. Its own settings keep it from files and the network, but a path that may be
read may be written too, and since 2.0 a WITH may hold a COPY. So the tree is held against lists of what is allowed,
not of what is not: a later DuckDB may learn more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import duckdb

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.query.complaints import no_such_table, syntax_error
from headrace.units import quoted

_NODES = {"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"}
_FUNCTIONS = {"unnest", "range", "generate_series", "json_each", "json_tree"}  # those that stand where a table does
_CATALOGS = {"information_schema", "pg_catalog"}
_OURS = {"", "main"}


def tables_in(connection: duckdb.DuckDBPyConnection, sql: str, known: Mapping[str, object]) -> list[str]:
    """The tables that a SELECT reads. Raises PipelineError for anything else, and for a table that is not there."""
    (answer,) = connection.execute("select json_serialize_sql(?::varchar)", [sql]).fetchone() or ("{}",)
    try:
        tree = json.loads(answer)
    except RecursionError:
        raise _refusal("found SQL that is nested too deeply") from None
    if tree["error"]:
        if "position" in tree:
            raise syntax_error(tree["error_message"], sql, int(tree["position"]))
        raise _refusal(_kinds_of_statements(connection, sql) or f"found {tree['error_message']}")
    if len(tree["statements"]) != 1:
        raise _refusal(f"found {len(tree['statements']) or 'no'} statements")
    nodes = list(_nodes(tree))
    local = {name.lower() for node in nodes for name in _named_here(node)}
    wanted: dict[str, None] = {}  # a set that keeps its order
    for node in nodes:
        for name in _tables_of(node, sql, known, local):
            wanted[name] = None
    return list(wanted)


def _tables_of(node: dict[str, Any], sql: str, known: Mapping[str, object], local: set[str]) -> list[str]:
    kind = node.get("type")
    if isinstance(kind, str) and kind.endswith("_NODE") and kind not in _NODES:
        raise _refusal(f"found {kind.split('_')[0]} inside a SELECT")
    if kind == "TABLE_FUNCTION" and node["function"]["function_name"].lower() not in _FUNCTIONS:
        raise _refusal(f"found the function {quoted(node['function']['function_name'])} in place of a table")
    if kind == "SHOW_REF" and node.get("show_type", "").startswith("SHOW"):
        return list(known)  # SHOW TABLES and the like are about all of them
    if kind != "BASE_TABLE":
        return []
    name, schema = node["table_name"], node["schema_name"]
    if schema.lower() in _CATALOGS:
        return list(known)
    if schema.lower() not in _OURS:
        raise no_such_table(f"{schema}.{name}", list(known), sql, node["query_location"])
    found = next((own for own in known if own.lower() == name.lower()), None)
    if found is not None:
        return [found]
    if name.lower() in local:
        return []
    raise no_such_table(name, list(known), sql, node["query_location"])


def _named_here(node: dict[str, Any]) -> list[str]:
    """What a WITH names: no table of the lake."""
    return [entry["key"] for entry in node.get("cte_map", {}).get("map", ())]


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    # In the order of the text, so that the first fault is the one told. Not recursive: a tree may be deep.
    waiting = [tree]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield one
            waiting.extend(reversed(one.values()))
        elif isinstance(one, list):
            waiting.extend(reversed(one))


def _kinds_of_statements(connection: duckdb.DuckDBPyConnection, sql: str) -> str:
    try:
        kinds = [statement.type.name for statement in connection.extract_statements(sql)]
    except duckdb.Error:
        return ""
    shown = ["PIVOT" if kind == "MULTI" else kind for kind in kinds if kind != "SELECT"]
    return f"found {' and '.join(shown)}" if shown else ""


def _refusal(found: str) -> PipelineError:
    return PipelineError("SQL_REFUSED", found=found)
