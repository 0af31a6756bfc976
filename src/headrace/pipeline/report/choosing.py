"""Which broadcast a report is about: all that a lake holds, and what an argument means among them.

A broadcast is one stream_id of one node. A name that was asked for and refused, and never published, is listed too: it
has a report of its own, but it is no broadcast and never the newest one.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Literal

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.report import words
from headrace.pipeline.report.tables import LakeTables, Row

State = Literal["live", "ended", "cut_off", "refused"]

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_COLUMNS = ("node", "stream", "stream_id", "kind", "boot", "started_at", "stopped_at", "last_seen_at", "is_open")
_SHOWN_NAMES = 5
_TOGETHER = timedelta(seconds=10)  # a destination is connected in less than this, or fails
_REFUSALS = ("refused", "publish_refused")


@dataclass(frozen=True, slots=True, kw_only=True)
class Broadcast:
    unit: str  # the name of its files in the lake
    node: str
    stream: str
    stream_id: str | None  # None: only refusals
    state: State  # cut_off: its server ended without a word
    started_at: datetime
    last_seen_at: datetime

    @property
    def is_refusals(self) -> bool:
        return self.stream_id is None

    def is_on(self, day: date) -> bool:
        return self.started_at.astimezone(UTC).date() <= day <= self.last_seen_at.astimezone(UTC).date()


class Catalogue:
    """Every broadcast of a lake, newest first, and what was refused."""

    def __init__(self, lake: LakeTables) -> None:
        self._lake = lake
        units = list(self._sessions())
        boots = _newest_boots(row for _, rows in units for row in rows)
        found = [one for unit, rows in units if (one := _broadcast(unit, rows, boots)) is not None]
        found.sort(key=lambda one: (one.started_at, one.unit), reverse=True)
        self.broadcasts = [one for one in found if not one.is_refusals]
        self.refusals = [one for one in found if one.is_refusals]

    def _sessions(self) -> Iterator[tuple[str, list[Row]]]:
        # Plays are the many, and tell nothing that is wanted here.
        for unit, rows in self._lake.all_rows("sessions", _COLUMNS, kind=("publish", *_REFUSALS)):
            # Where the start of a stream was lost or lies before --from, its plays still tell when it was.
            own = rows or self._lake.rows("sessions", unit, _COLUMNS, kind="play")
            if own:
                yield unit, own

    def newest(self) -> Broadcast:
        """The newest broadcast; of one that was relayed to other nodes of the lake, where it came in."""
        if self.broadcasts:
            latest = self.broadcasts[0].started_at
            together = [one for one in self.broadcasts if latest - one.started_at <= _TOGETHER]
            relayed = set(self._lake.units("destination_health"))
            sources = [one for one in together if one.unit in relayed]
            return sources[-1] if sources else together[0]
        if self.refusals:
            return self.refusals[0]
        raise self._not_found("no broadcast")

    def named(self, text: str) -> Broadcast:
        """By the id that a list shows, by app/name (the newest of that name), or by a recording's file."""
        everything = [*self.broadcasts, *self.refusals]
        for one in everything:
            if text == one.stream_id:
                return one
        for one in everything:  # broadcasts first, each kind newest first
            if text == one.stream:
                return one
        if text.endswith(".flv") or "/" not in text or Path(text).is_absolute():
            return self._recorded(text)
        raise self._not_found(f"no broadcast of {words.name(text)}")

    def on(self, day: date) -> list[Broadcast]:
        """All that were live at some time of this day (UTC), oldest first."""
        found = [one for one in self.broadcasts if one.is_on(day)]
        if not found:
            raise self._not_found(f"no broadcast on {day.isoformat()} (UTC)")
        return found[::-1]

    def refusals_beside(self, broadcast: Broadcast) -> Broadcast | None:
        """What was refused under the same name."""
        same = (broadcast.node, broadcast.stream)
        return next((one for one in self.refusals if (one.node, one.stream) == same), None)

    def _recorded(self, text: str) -> Broadcast:
        columns = ("path", "found_path")
        given, name = str(Path(text).absolute()), Path(text).name
        exact: set[str] = set()
        by_name: dict[str, str] = {}
        for unit, rows in self._lake.all_rows("recordings", columns):
            for row in rows:
                paths = [path for path in (row["path"], row["found_path"]) if path is not None]
                if given in paths or text in paths:
                    exact.add(unit)
                if any(Path(path).name == name for path in paths):
                    by_name[unit] = paths[0]
        units = exact or set(by_name)
        matching = [one for one in self.broadcasts if one.unit in units]
        if len(matching) == 1:
            return matching[0]
        if matching:
            places = words.listed(sorted(words.name(by_name.get(one.unit, one.stream)) for one in matching))
            raise PipelineError("BROADCAST_AMBIGUOUS", what=words.name(text), found=places)
        raise self._not_found(f"no broadcast, recording or id {words.name(text)}")

    def _not_found(self, what: str) -> PipelineError:
        return PipelineError("BROADCAST_NOT_FOUND", what=what, path=self._lake.root, there=self._there())

    def _there(self) -> str:
        """What there is, in a few words."""
        if not self.broadcasts:
            return "it holds none yet; headrace pipeline batch takes them in"
        counts = Counter(one.stream for one in self.broadcasts)  # in the order of the newest
        shown = [f"{words.name(name)} ({number})" for name, number in list(counts.items())[:_SHOWN_NAMES]]
        if len(counts) > _SHOWN_NAMES:
            shown.append(f"{len(counts) - _SHOWN_NAMES} more")
        days = sorted({one.started_at.date().isoformat() for one in self.broadcasts})
        span = f"on {days[0]}" if len(days) == 1 else f"from {days[0]} to {days[-1]}"
        return f"there is {words.listed(shown)}, {span}"


def as_day(text: str) -> date | None:
    """The day that an argument means, if it looks like one."""
    if not _DATE.fullmatch(text):
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise PipelineError("OPTION_INVALID", option="DATE", value=text, expected="a day such as 2026-01-31") from None


def _newest_boots(sessions: Iterable[Row]) -> dict[str, tuple[datetime, str]]:
    """Of each node the start of the newest session, and the boot it belongs to."""
    newest: dict[str, tuple[datetime, str]] = {}
    for row in sessions:
        if row["node"] is not None and row["started_at"] is not None and row["boot"] is not None:
            newest[row["node"]] = max(newest.get(row["node"], _NEVER), (row["started_at"], row["boot"]))
    return newest


_NEVER = (datetime.min.replace(tzinfo=UTC), "")


def _broadcast(unit: str, rows: Sequence[Row], boots: dict[str, tuple[datetime, str]]) -> Broadcast | None:
    by_kind: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row["started_at"] is not None:
            by_kind[row["kind"]].append(row)
    stream_id = rows[0]["stream_id"]
    kinds = _REFUSALS if stream_id is None else ("publish",) if by_kind["publish"] else ("play",)
    own = [row for kind in kinds for row in by_kind[kind]]
    if not own:
        return None
    last = max(own, key=lambda row: (row["started_at"], row["last_seen_at"] or row["started_at"]))
    state: State = "ended"
    if stream_id is None:
        state = "refused"
    elif last["is_open"]:
        # A server that has started again since did not go on with it.
        state = "live" if boots[last["node"]][1] == last["boot"] else "cut_off"
    ends = [row["stopped_at"] or row["last_seen_at"] or row["started_at"] for row in own]
    return Broadcast(
        unit=unit,
        node=last["node"],
        stream=last["stream"] or "",
        stream_id=stream_id,
        state=state,
        started_at=min(row["started_at"] for row in own),
        last_seen_at=max(ends),
    )
