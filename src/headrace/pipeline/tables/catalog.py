"""Every table of the lake: its layer and its columns."""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql.types import StructType

from headrace.pipeline.tables import (
    audience,
    destination_health,
    destination_states,
    events,
    gops,
    incidents,
    problems,
    recordings,
    relay_audit,
    sessions,
    stream_health,
    stream_windows,
    tags,
)


class Table(NamedTuple):
    layer: str
    schema: StructType


TABLES: dict[str, Table] = {
    "events": Table("bronze", events.SCHEMA),
    "tags": Table("bronze", tags.SCHEMA),
    "problems": Table("bronze", problems.SCHEMA),
    "gops": Table("silver", gops.SCHEMA),
    "stream_windows": Table("silver", stream_windows.SCHEMA),
    "sessions": Table("silver", sessions.SCHEMA),
    "destination_states": Table("silver", destination_states.SCHEMA),
    "stream_health": Table("gold", stream_health.SCHEMA),
    "destination_health": Table("gold", destination_health.SCHEMA),
    "audience": Table("gold", audience.SCHEMA),
    "relay_audit": Table("gold", relay_audit.SCHEMA),
    "incidents": Table("gold", incidents.SCHEMA),
    "recordings": Table("gold", recordings.SCHEMA),
}
BRONZE = tuple(name for name, table in TABLES.items() if table.layer == "bronze")
DERIVED = tuple(name for name in TABLES if name not in BRONZE)
