"""What went wrong, in order of time, with what each was caused by: rows of `incidents` in words. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from headrace.pipeline.report import advice, words
from headrace.pipeline.report.facts import Incident
from headrace.pipeline.report.tables import Row

INCIDENT_COLUMNS = (
    "incident_id",
    "kind",
    "started_at",
    "ended_at",
    "duration_ms",
    "destination",
    "viewers",
    "cause",
    "cause_id",
    "destinations_dropped",
    "viewers_exited",
)

KINDS = {
    "publisher_stall": "encoder stalled",
    "publisher_lost": "encoder gone",
    "destination_drop": "destination lost",
    "audience_exit": "viewers left",
}


def build_incidents(rows: Sequence[Row], publish_starts: Collection[datetime]) -> tuple[Incident, ...]:
    ordered = sorted(
        (row for row in rows if row["started_at"] is not None),
        key=lambda row: (row["started_at"], row["kind"] != "publisher_stall", str(row["incident_id"])),
    )
    numbers = {row["incident_id"]: number for number, row in enumerate(ordered, start=1)}
    return tuple(
        Incident(
            number=number,
            incident_id=row["incident_id"],
            kind=row["kind"],
            started_at=row["started_at"],
            ended_at=row["ended_at"],
            duration_ms=row["duration_ms"],
            destination=row["destination"],
            viewers=row["viewers"],
            cause=row["cause"],
            cause_number=numbers.get(row["cause_id"]),
            destinations_dropped=tuple(row["destinations_dropped"] or ()),
            viewers_exited=row["viewers_exited"] or 0,
            has_recovered=_has_recovered(row, publish_starts),
            what=_what(row, _has_recovered(row, publish_starts)),
            why=_why(row, numbers.get(row["cause_id"])),
        )
        for number, row in enumerate(ordered, start=1)
    )


def most_telling(incidents: Sequence[Incident], number: int) -> tuple[Incident, ...]:
    """So many of them, in order of time: first what the encoder did, then what lasted longest."""

    def weight(one: Incident) -> tuple[bool, bool, int]:
        return one.kind.startswith("publisher"), one.ended_at is None, one.duration_ms or 0

    kept = sorted(incidents, key=weight, reverse=True)[:number]
    return tuple(sorted(kept, key=lambda one: one.number))


def _has_recovered(row: Row, publish_starts: Collection[datetime]) -> bool:
    if row["kind"] == "publisher_lost":  # which ends with the stream too
        return row["ended_at"] in publish_starts
    return row["ended_at"] is not None


def _what(row: Row, has_recovered: bool) -> str:
    lasted = None if row["duration_ms"] is None else words.duration(row["duration_ms"])
    kind = row["kind"]
    if kind == "publisher_stall":
        told = f"Nothing came from the encoder for {lasted}" if lasted else "Nothing came from the encoder any more"
    elif kind == "publisher_lost":
        told = (
            f"The encoder was gone for {lasted}"
            if lasted and has_recovered
            else "The encoder was gone and did not return"
        )
    elif kind == "destination_drop":
        name = words.name(row["destination"])
        told = f"{name} was disconnected for {lasted}" if lasted else f"{name} was disconnected and did not come back"
    elif kind == "audience_exit":
        told = f"{words.counted(row['viewers'] or 0, 'viewer')} left"
    else:
        told = words.name(kind)
    return told + _effects(row)


def _effects(row: Row) -> str:
    effects = []
    if row["destinations_dropped"]:
        effects.append(words.listed([words.name(name) for name in row["destinations_dropped"]]) + " dropped")
    if row["viewers_exited"]:
        effects.append(f"{words.counted(row['viewers_exited'], 'viewer')} left")
    return f"; because of it {words.listed(effects)}" if effects else ""


def _why(row: Row, cause_number: int | None) -> str:
    if row["cause_id"] is not None:
        kind = KINDS.get(row["cause"], words.name(row["cause"]))
        return f"incident {cause_number} ({kind})" if cause_number is not None else kind
    return advice.error_words(row["cause"])
