"""Whether events that were just written are all new, told from their keys alone.

A server numbers the events of a boot, and an archive is taken in in the order of its hours, so almost always the
numbers of a piece lie behind those of the piece before. Where they do, nothing has to be sorted or joined, which costs
twice as much as to read and to write the rows. Where they do not, who is a copy of whom is Spark's business.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from headrace.pipeline.jobs.lake import Lake, Staged
from headrace.pipeline.tables import events

Numbers = dict[tuple[str, str], tuple[int, int]]  # by node and boot: the lowest and the highest


def has_copies(lake: Lake, staged: Staged) -> bool:
    """Whether two of these events have, or may have, one key, or one has, or may have, that of an event in the lake."""
    span = staged.event_span()
    if span is None:
        return False
    rows = _keys(staged.dataset())
    if rows.group_by(list(events.KEY)).aggregate([]).num_rows < rows.num_rows:
        return True
    # A copy has the time of the event too.
    near = lake.parts_between(*span)
    if not near:
        return False
    own, known = _numbers(rows), _numbers(_keys(lake.dataset("events", near)))
    return any(own[boot][0] <= known[boot][1] and known[boot][0] <= own[boot][1] for boot in own.keys() & known.keys())


def _keys(rows: ds.Dataset) -> pa.Table:
    *names, number = events.KEY
    table = rows.to_table(columns=[*names, number])
    # There are few nodes and boots, and their names are long.
    return pa.table(
        {**{name: pc.dictionary_encode(table[name]) for name in names}, number: table[number]}
    ).unify_dictionaries()


def _numbers(rows: pa.Table) -> Numbers:
    node, boot, number = events.KEY
    found = rows.group_by([node, boot]).aggregate([(number, "min"), (number, "max")]).to_pylist()
    return {(row[node], row[boot]): (row[f"{number}_min"], row[f"{number}_max"]) for row in found}
