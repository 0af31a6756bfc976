"""A process that records without end, to be killed: python -m tests.unit.record.endless_recording SOURCE DIRECTORY.

Says on standard output how many tags have been written, again and again.
"""

from __future__ import annotations

import asyncio
import faulthandler
import sys
from itertools import count
from pathlib import Path

from headrace.record.service import RecordingService
from headrace.stream.log import LogLimits
from headrace.stream.registry import Stream
from tests.unit.record.samples import DEADLINE_S, contents


async def record(source: Path, directory: Path) -> None:
    messages = contents(source)
    round_ms = 10_000
    stream = Stream("live", "cam", LogLimits(retain_s=600), 0.0)
    recorder = RecordingService(directory, gather_s=0).start(stream)
    reported = 0
    for number in count():
        for message in messages:
            if number and message.type_id == 18:
                continue
            stream.append(message.type_id, message.timestamp_ms + number * round_ms, message.payload)
            await asyncio.sleep(0)
            # So that the cursor does not fall off the log. There is nothing to wait on: it reports to nobody. A real
            # sleep: a loop that only lets go of the interpreter for a microsecond at a time can keep the writer's
            # thread from it for long.
            while stream.log.tail - recorder.totals.tags > 500:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            if recorder.totals.tags > reported:
                reported = recorder.totals.tags
                print(reported, flush=True)


if __name__ == "__main__":
    faulthandler.dump_traceback_later(DEADLINE_S, exit=True)  # says where it hangs, if it does
    asyncio.run(record(Path(sys.argv[1]), Path(sys.argv[2])))
