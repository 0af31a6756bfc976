from __future__ import annotations

import pytest
from py4j.clientserver import ClientServerConnection
from pyspark.sql import SparkSession
from pyspark.sql import functions as F


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_a_function_that_was_used_before_is_one_call_to_the_jvm(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    send = ClientServerConnection.send_command

    def counted(self: ClientServerConnection, command: str) -> str:
        if not command.startswith("m"):  # what is no longer needed is told at any time
            calls.append(command)
        answer: str = send(self, command)
        return answer

    F.lit(1)
    column = F.col("id")
    monkeypatch.setattr(ClientServerConnection, "send_command", counted)
    F.lit(1)
    assert len(calls) <= 2, calls
    calls.clear()
    for _ in range(10):
        F.abs(column)
    assert len(calls) <= 12, calls
    assert spark.range(3).select(F.abs(F.max("id"))).collect()[0][0] == 2
