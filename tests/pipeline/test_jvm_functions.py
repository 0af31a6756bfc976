from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from py4j.clientserver import ClientServerConnection
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headrace.pipeline.jvm_functions import keep_objects

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.fixture
def calls(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the JVM is called for."""
    found: list[str] = []
    send = ClientServerConnection.send_command

    def counted(self: ClientServerConnection, command: str) -> str:
        found.append(command)
        answer: str = send(self, command)
        return answer

    monkeypatch.setattr(ClientServerConnection, "send_command", counted)
    return found


@pytest.fixture
def kept(spark: SparkSession) -> Iterator[None]:
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    before = gateway.gateway_property.enable_memory_management
    keep_objects(spark)
    yield
    gateway.gateway_property.enable_memory_management = before


def _without_letting_go(calls: list[str]) -> list[str]:
    return [call for call in calls if not call.startswith("m")]  # what is no longer needed is told at any time


def test_a_function_that_was_used_before_is_one_call_to_the_jvm(spark: SparkSession, calls: list[str]) -> None:
    F.lit(1)
    column = F.col("id")
    calls.clear()
    F.lit(1)
    assert len(_without_letting_go(calls)) <= 2, calls
    calls.clear()
    for _ in range(10):
        F.abs(column)
    assert len(_without_letting_go(calls)) <= 12, calls
    assert spark.range(3).select(F.abs(F.max("id"))).collect()[0][0] == 2


def test_a_column_that_was_named_before_is_no_call_to_the_jvm(calls: list[str]) -> None:
    F.max("named_before")
    calls.clear()
    F.col("named_before")
    assert _without_letting_go(calls) == []
    F.max("named_before")
    assert len(_without_letting_go(calls)) == 1, calls


def test_a_list_of_columns_is_two_calls_to_the_jvm(calls: list[str]) -> None:
    columns = [F.lit(number) for number in range(10)]
    F.array(*columns)
    calls.clear()
    F.array(*columns)
    assert len(_without_letting_go(calls)) == 3, calls  # and what is called with it


@pytest.mark.parametrize("size", [0, 1, 10, 11, 25])
def test_a_list_of_any_length_comes_to_the_jvm_as_it_is(spark: SparkSession, size: int) -> None:
    numbers = F.array(*(F.lit(number) for number in range(size)))
    assert spark.range(1).select(numbers.alias("numbers")).collect()[0].numbers == list(range(size))
    names = [f"c{number}" for number in range(size)]
    rows = spark.range(1).select("id", *(F.lit(name).alias(name) for name in names))
    assert rows.select(*names).columns == names
    assert rows.select("id", *names).where(F.col("id").isin(*range(size), None)).count() == min(size, 1)


def test_a_short_job_lets_go_of_nothing(kept: None, calls: list[str]) -> None:
    gc.collect()
    calls.clear()
    for number in range(20):
        F.lit(number)
    gc.collect()
    assert len([call for call in calls if call.startswith("m")]) <= 1, calls
