"""Rows as text for programs: CSV as in RFC 4180, and JSON with an object for each row on a line of its own."""

from __future__ import annotations

import csv
from typing import TextIO

from headrace.pipeline.query.result import Result
from headrace.pipeline.query.values import as_json, text


def write_csv(result: Result, out: TextIO) -> None:
    """A header, then the rows. Null is an empty field; lists and structs are JSON inside theirs."""
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(result.columns)
    for row in result.rows:
        writer.writerow([text(value) for value in row])


def write_json(result: Result, out: TextIO) -> None:
    for row in result.rows:
        out.write(as_json(dict(zip(result.columns, row, strict=True))) + "\n")
