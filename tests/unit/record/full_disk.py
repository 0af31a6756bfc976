"""A process that records the same media to a small disk and to a large one until the small one is full.

python -m tests.unit.record.full_disk SOURCE SMALL LARGE, where SMALL is a mounted file system. The file that
was left on it is copied to LARGE/copy.flv, as the mount ends with the process. Prints what happened as JSON.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sys
from pathlib import Path

from headrace.record.service import RecordingService
from headrace.stream.log import LogLimits
from headrace.stream.registry import Stream
from tests.unit.record.samples import DEADLINE_S, contents


async def record(source: Path, small: Path, large: Path) -> dict[str, object]:
    stream = Stream("live", "cam", LogLimits(retain_s=600), 0.0)
    services = [RecordingService(directory, gather_s=0) for directory in (small, large)]
    recorders = [service.start(stream) for service in services]
    sent = 0
    number = 0
    # Until the disk is full, and for a while after.
    while not services[0].totals.errors or sent < 2 * services[0].totals.tags:
        for message in contents(source):
            if number and message.type_id == 18:
                continue
            stream.append(message.type_id, message.timestamp_ms + number * 10_000, message.payload)
            sent += 1
            await asyncio.sleep(0)
            # So that the cursor does not fall off the log. There is nothing to wait on: it reports to nobody.
            while stream.log.tail - recorders[1].totals.tags > 500:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        number += 1
    is_closed = [await service.close(DEADLINE_S) for service in services]
    totals = [service.totals for service in services]
    return {
        "sent": sent,
        "closed": is_closed,
        "tags": [total.tags for total in totals],
        "errors": [total.errors for total in totals],
        "skipped": [sum(total.skipped.values()) for total in totals],
    }


if __name__ == "__main__":
    signal.alarm(DEADLINE_S)
    source, small, large = (Path(argument) for argument in sys.argv[1:4])
    report = asyncio.run(record(source, small, large))
    [left] = small.iterdir()
    shutil.copy(left, large / "copy.flv")
    print(json.dumps(report))
