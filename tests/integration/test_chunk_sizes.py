"""Chunks of every size in both directions. FFmpeg adopts the server's size when it publishes."""

from __future__ import annotations

import pytest

from headrace.protocol.client import Role
from tests.integration.clips import ClipLibrary
from tests.integration.harness import PATIENT, Stage
from tests.integration.packets import assert_from_first_keyframe, assert_whole, packets_of
from tests.integration.raw_client import RawClient

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("chunk_size", ["128", "4096", "65536", "16777215"])
def test_ffmpeg_publishes_and_plays_at_the_servers_chunk_size(
    stage: Stage, clips: ClipLibrary, chunk_size: str
) -> None:
    clip = clips["h264_aac"]
    server = stage.server(*PATIENT, "-chunk-size", chunk_size)
    publisher = stage.feed(clip, server.url())
    server.wait_for_log("publish command")
    player = stage.play(server.url())
    server.wait_for_log("Subscriber added")
    publisher.finish()
    assert_from_first_keyframe(player.wait_ended(), packets_of(clip.path))


@pytest.mark.parametrize("chunk_size", [1, 128, 65536])
def test_a_publisher_may_have_its_own_chunk_size(stage: Stage, clips: ClipLibrary, chunk_size: int) -> None:
    clip = clips["h264_aac"]
    server = stage.server(*PATIENT)
    publisher = RawClient(stage, server, Role.PUBLISH, chunk_size=chunk_size).start()
    player = stage.play(server.url(), decode=True)
    server.wait_for_log("Subscriber added")
    publisher.send_tags(clip.tags)
    publisher.finish()
    # The player was there before the first message: it gets everything.
    assert_whole(player.wait_ended(), packets_of(clip.path))
