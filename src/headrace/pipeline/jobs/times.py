"""Which times a batch is wanted of."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F


@dataclass(frozen=True, slots=True)
class Range:
    """From `start` up to, not including, `stop`; None is no limit."""

    start: datetime | None = None
    stop: datetime | None = None

    @property
    def is_everything(self) -> bool:
        return self.start is None and self.stop is None

    def has_hour(self, hour: datetime) -> bool:
        is_late_enough = self.start is None or hour + timedelta(hours=1) > self.start
        return is_late_enough and (self.stop is None or hour < self.stop)

    def limit(self, rows: DataFrame, column: str) -> DataFrame:
        """Those whose column, in milliseconds since 1970, is inside."""
        if self.start is not None:
            rows = rows.where(F.col(column) >= _ms(self.start))
        if self.stop is not None:
            rows = rows.where(F.col(column) < _ms(self.stop))
        return rows

    def limit_table(self, rows: pa.Table, column: str) -> pa.Table:
        if self.start is not None:
            rows = rows.filter(pc.field(column) >= _ms(self.start))
        if self.stop is not None:
            rows = rows.filter(pc.field(column) < _ms(self.stop))
        return rows


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
