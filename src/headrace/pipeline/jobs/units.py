"""The rows of bronze that some streams are built from: events that name them, and tags of the files they recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from headrace.pipeline.jobs.parts import REFUSED, After, EventParts, Parts
from headrace.pipeline.layout import Unit, file_of

# What the driver takes upon itself: half an hour of a few streams. Beyond it the executors do the work.
MAX_FEW_EVENTS = 100_000
MAX_FEW_TAGS = 200_000


class Selection:
    """Rows of some units as Arrow, complete. Without `tags` for tables that need none."""

    def __init__(self, events: EventParts, tags: Parts | None, units: Collection[Unit]) -> None:
        self._events = events
        self._tags = tags
        self.units = units
        self.ids: list[str] = sorted({unit.stream_id for unit in units if unit.stream_id is not None})
        self._names = sorted({unit.stream for unit in units if unit.stream is not None})

    def of(self, units: Collection[Unit]) -> Selection:
        """The same of other units."""
        return Selection(self._events, self._tags, units)

    @property
    def files(self) -> list[str]:
        return [file_of(unit) for unit in self.units]

    def is_few(self, after: After | None = None) -> bool:
        """With `after` those before are not counted: they need not be read."""
        has_few_tags = self._tags is None or self._tags.count(self._paths, after) <= MAX_FEW_TAGS
        return has_few_tags and self._events.count(self.ids) <= MAX_FEW_EVENTS

    def events(self) -> pa.Table:
        # A stream_id on two nodes, which only a made-up log has, takes in both: each is complete, so no harm is done.
        own = self._events.rows(self.ids)
        if not self._names:
            return own
        is_refused = pc.field("type").isin(REFUSED) & pc.field("stream").isin(self._names)
        return pa.concat_tables([own, self._events.rows([None]).filter(is_refused)])

    def opened(self) -> pa.Table:
        """What anybody says of the files that these recorded."""
        opened = self._events.opened()
        return opened.filter(
            pa.array([file_name(path) in self._file_names for path in opened["path"].to_pylist()], pa.bool_())
        )

    def tags(self, after: After | None = None, known: Collection[str] = ()) -> pa.Table:
        """Without those of files that are `known`."""
        assert self._tags is not None
        return self._tags.rows([path for path in self._paths if path not in known], after)

    def tag_counts(self) -> Counter[str | None]:
        """By path."""
        assert self._tags is not None
        return self._tags.counts(self._paths)

    @cached_property
    def _file_names(self) -> set[str]:
        opened = self._events.opened()
        own = opened.filter(pc.is_in(opened["stream_id"], value_set=pa.array(self.ids, pa.string())))
        return {file_name(path) for path in own["path"].to_pylist()}

    @cached_property
    def _paths(self) -> list[str]:
        paths = set() if self._tags is None else self._tags.all_keys()
        return sorted(path for path in paths if path is not None and file_name(path) in self._file_names)


def file_name(path: str) -> str:
    return path.rpartition("/")[2]
