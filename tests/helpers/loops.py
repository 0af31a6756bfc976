"""The event loops that the server may run on: each test of the driver runs on both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest
import uvloop

from tests.helpers.waiting import DEADLINE_S

ResultT = TypeVar("ResultT")
LoopFactory = Callable[[], asyncio.AbstractEventLoop]

LOOP_FACTORIES: dict[str, LoopFactory] = {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}
on_both_loops = pytest.mark.parametrize("loop_factory", LOOP_FACTORIES.values(), ids=LOOP_FACTORIES.keys())


class CallbackFailedError(AssertionError):
    """A callback of the loop raised: asyncio would only log it."""


def run(loop_factory: LoopFactory, test: Callable[[], Coroutine[Any, Any, ResultT]]) -> ResultT:
    """Run a test's coroutine on a loop of that kind, within a deadline, and fail if any callback raised meanwhile."""
    failures: list[dict[str, Any]] = []

    async def within_deadline() -> ResultT:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: failures.append(context))
        async with asyncio.timeout(2 * DEADLINE_S):
            return await test()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        result = runner.run(within_deadline())
    if failures:
        raise CallbackFailedError(str(failures)) from failures[0].get("exception")
    return result
