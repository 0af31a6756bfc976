from __future__ import annotations

import csv
import io
import json
from typing import Any

from headrace.pipeline.query.formats import write_csv, write_json
from headrace.pipeline.query.result import Result

ROWS: list[tuple[Any, ...]] = [("live/a,b", 1, [{"n": 'x"y'}]), ('"q"\r\nz', None, []), ("", 2, None)]


def result() -> Result:
    return Result(["stream", "n", "list"], iter(ROWS))


def test_csv_is_that_of_rfc_4180() -> None:
    out = io.StringIO()
    write_csv(result(), out)
    assert out.getvalue() == ('stream,n,list\r\n"live/a,b",1,"[{""n"": ""x\\""y""}]"\r\n"""q""\r\nz",,[]\r\n,2,\r\n')
    rows = list(csv.reader(io.StringIO(out.getvalue(), newline="")))
    assert [row[0] for row in rows] == ["stream", "live/a,b", '"q"\r\nz', ""]


def test_csv_without_rows_has_its_header() -> None:
    out = io.StringIO()
    write_csv(Result(["a", "b"], iter(())), out)
    assert out.getvalue() == "a,b\r\n"


def test_json_has_an_object_on_each_line() -> None:
    out = io.StringIO()
    write_json(result(), out)
    assert [json.loads(line) for line in out.getvalue().splitlines()] == [
        {"stream": "live/a,b", "n": 1, "list": [{"n": 'x"y'}]},
        {"stream": '"q"\r\nz', "n": None, "list": []},
        {"stream": "", "n": 2, "list": None},
    ]
