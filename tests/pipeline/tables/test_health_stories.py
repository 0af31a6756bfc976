"""A stream that is well but for its pauses is told to have paused and nothing else, wherever the windows fall."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.pipeline.tables import stream_health, stream_windows
from tests.pipeline.tables.rows import event, frame_of, sample, stream_tags_of

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

STORIES = 200
FRAME_MS, KEYFRAME_MS = 40, 2_000
FRAME_BYTES, KEYFRAME_BYTES, AUDIO_BYTES = 1_000, 25_000, 320  # a keyframe weighs as much as a second of others
DECLARED_KBPS = (24 + 25 / 2) * 8  # what these are in a second, of every second of which one is a keyframe
TICK_MS = 5


@dataclass(frozen=True, slots=True)
class Story:
    """What an encoder did: how fast it works (1 is real time), when it began, when it paused and for how long."""

    start_ms: int
    length_ms: int
    lead_ms: int  # of media at the start: made while it connected
    speed: float
    pauses: tuple[tuple[int, int], ...] = ()
    pace: float = 1.0  # how fast its clock goes

    def arrivals(self) -> Iterator[tuple[int, int]]:
        """When each frame came, and which one it was."""
        media_ms, frame = 0.0, 0
        for now_ms in range(0, self.length_ms, TICK_MS):
            if any(start <= now_ms < start + during for start, during in self.pauses):
                continue
            media_ms = min(now_ms * self.pace + self.lead_ms, media_ms + TICK_MS * self.speed)
            while frame * FRAME_MS <= media_ms:
                yield now_ms, frame
                frame += 1

    def events(self, stream_id: str, first_sample_ms: int) -> list[dict[str, Any]]:
        told = [
            event("publish_started", self.start_ms, 1, conn="c1", resumed=False, position=0),
            event("metadata", self.start_ms, 2, declared_video_kbps=DECLARED_KBPS, declared_frame_rate=25.0),
        ]
        arrivals, before_ms, newest_ms, arrived_ms = list(self.arrivals()), 0, 0, 0
        ends_ms = [*range(first_sample_ms, self.length_ms, 1000), self.length_ms]
        for end_ms in ends_ms:
            here = [(at_ms, frame) for at_ms, frame in arrivals if before_ms <= at_ms < end_ms]
            gap_ms = 0
            for at_ms, frame in here:
                gap_ms, arrived_ms, newest_ms = max(gap_ms, at_ms - arrived_ms), at_ms, frame * FRAME_MS
            keyframes = sum(frame * FRAME_MS % KEYFRAME_MS == 0 for _, frame in here)
            told.append(
                sample(
                    self.start_ms + end_ms,
                    len(told) + 1,
                    interval_ms=end_ms - before_ms,
                    video_bytes=keyframes * KEYFRAME_BYTES + (len(here) - keyframes) * FRAME_BYTES,
                    audio_bytes=len(here) * AUDIO_BYTES,
                    messages=2 * len(here),
                    frames=len(here),
                    keyframes=keyframes,
                    max_gap_ms=gap_ms,
                    **dict.fromkeys(("media_ms", "timestamp_ms", "video_ms", "audio_ms"), newest_ms),
                )
            )
            before_ms = end_ms
        told.append(event("stream_ended", self.start_ms + self.length_ms, len(told) + 1, reason="left", position=9))
        return [{**one, "stream_id": stream_id} for one in told]


def some_story(chance: random.Random) -> Story:
    length_ms = chance.randrange(500, 40_000)
    pauses = [
        (chance.randrange(length_ms), chance.choice((chance.randrange(200, 1900), chance.randrange(200, 6000))))
        for _ in range(chance.randrange(5))
    ]
    lead_ms = chance.choice((0, 500, 1000, chance.randrange(3000)))
    return Story(chance.randrange(10_000), length_ms, lead_ms, chance.choice((2.0, 5.0, 20.0)), tuple(pauses))


def issues_of(spark: SparkSession, stories: list[Story]) -> dict[Story, set[str]]:
    chance = random.Random(7)
    told = [story.events(f"{n:04}", chance.randrange(1, 1000)) for n, story in enumerate(stories)]
    frame = frame_of(spark, [one for events in told for one in events])
    rows = stream_health.build(frame, stream_windows.build(frame, stream_tags_of(spark, []))).collect()
    found: dict[Story, set[str]] = {story: set() for story in stories}
    for row in rows:
        found[stories[int(row["stream_id"])]] |= {one["name"] for one in row["issues"] if one["severity"] != "info"}
    return found


def test_pauses_and_a_hasty_start_are_told_as_pauses_wherever_the_windows_fall(spark: SparkSession) -> None:
    chance = random.Random(4)
    found = issues_of(spark, [some_story(chance) for _ in range(STORIES)])
    assert {story: names for story, names in found.items() if names - {"videoIngestionStarved"}} == {}
    # Those that were silent for long, and they alone, are told.
    silences_ms = {story: longest_silence_ms(story) for story in found}
    silent = {story for story, silence_ms in silences_ms.items() if silence_ms > stream_health.STARVED_MS}
    brief = {story for story in found if all(during < stream_health.STARVED_MS / 4 for _, during in story.pauses)}
    assert len(silent) > 20 < len(brief)
    assert all(found[story] for story in silent)
    assert not any(found[story] for story in brief)


def test_an_encoder_that_is_faster_than_the_clock_is_told_after_three_windows_at_most(spark: SparkSession) -> None:
    fast = [Story(start, 36_000, 0, 20.0, pace=pace) for start in (0, 4_000, 9_900) for pace in (1.25, 1.5, 10.0)]
    found = issues_of(spark, fast)
    assert all("videoIngestionFasterThanRealtime" in names for names in found.values())


def longest_silence_ms(story: Story) -> int:
    """Between two arrivals: one that lasts to the end is known by whole samples only."""
    moments = [0, *(at_ms for at_ms, _ in story.arrivals())]
    return max((after - before for before, after in pairwise(moments)), default=0)
