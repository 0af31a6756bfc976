"""Questions, answers and news between two ends, and what happens when one of them is gone, mute or broken."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from typing import Any

import pytest

from headrace.workers.channel import Channel, ChannelError
from tests.helpers.loops import LoopFactory, on_both_loops, run
from tests.helpers.origin import LogCapture
from tests.helpers.waiting import eventually_async


class Ends:
    """Two channels that face each other."""

    def __init__(self, ours: Channel, theirs: Channel) -> None:
        self.ours, self.theirs = ours, theirs
        self.tasks = [asyncio.create_task(one.run()) for one in (ours, theirs)]

    @classmethod
    async def of(cls, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Ends:
        one, other = socket.socketpair()
        return cls(await Channel.over(one, ours), await Channel.over(other, theirs))

    async def close(self) -> None:
        self.ours.close()
        self.theirs.close()
        await asyncio.wait(self.tasks)


@on_both_loops
def test_questions_are_answered_each_with_its_own_answer(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        ends = await Ends.of({"add": lambda message: message["n"] + 1}, {"double": lambda message: message["n"] * 2})
        asked = [ends.ours.ask("double", n=number) for number in range(50)]
        back = [ends.theirs.ask("add", n=number) for number in range(50)]
        assert await asyncio.gather(*asked) == [2 * number for number in range(50)]
        assert await asyncio.gather(*back) == list(range(1, 51))
        await ends.close()

    run(loop_factory, test)


@on_both_loops
def test_names_that_are_no_unicode_text_and_large_snapshots_pass(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        told: list[Any] = []
        ends = await Ends.of({}, {"news": lambda message: told.append(message["value"])})
        values = ["live/\udcff\n", "é" * 10, ["x" * 1000] * 5000, None, 1.5]
        for value in values:
            ends.ours.tell("news", value=value)
        await eventually_async(lambda: len(told) == len(values), "the news")
        assert told == values
        await ends.close()

    run(loop_factory, test)


@on_both_loops
def test_who_asks_an_end_that_is_mute_or_gone_is_told_so(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        one, other = socket.socketpair()
        channel = await Channel.over(one, {})
        running = asyncio.create_task(channel.run())
        with pytest.raises(ChannelError, match="no answer to this within"):
            await channel.ask("this", 0.05)
        waiting = asyncio.create_task(channel.ask("that", 20.0))
        await asyncio.sleep(0)
        other.close()
        with pytest.raises(ChannelError, match="the other end is gone"):
            await waiting
        await running
        assert channel.is_lost
        with pytest.raises(ChannelError, match="the other end is gone"):
            await channel.ask("more")
        channel.tell("anything")  # and no error

    run(loop_factory, test)


def test_a_mistake_of_one_handler_is_a_line_in_the_log_and_the_rest_goes_on() -> None:
    log = LogCapture()

    async def test() -> None:
        ends = await Ends.of({}, {"broken": lambda message: 1 / 0, "well": lambda message: "well"})
        with pytest.raises(ChannelError):
            await ends.ours.ask("broken", 0.2)
        with pytest.raises(ChannelError):
            await ends.ours.ask("unknown", 0.2)
        assert await ends.ours.ask("well") == "well"
        await ends.close()
        assert [line["what"] for line in log.lines("Channel handler failed")] == ["broken", "unknown"]

    try:
        run(asyncio.SelectorEventLoop, test)
    finally:
        log.close()


def test_an_end_that_talks_nonsense_is_left() -> None:
    async def test() -> None:
        one, other = socket.socketpair()
        channel = await Channel.over(one, {})
        other.sendall(b"{nonsense\n")
        await channel.run()
        assert channel.is_lost
        other.close()

    run(asyncio.SelectorEventLoop, test)
