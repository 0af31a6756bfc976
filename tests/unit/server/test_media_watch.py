"""What is said about a publisher's media: the codecs once and after a change, and figures that can be checked."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from headrace.server.media_watch import REPORT_INTERVAL_S, MediaWatch
from headrace.stream.log import LogLimits, StreamLog
from tests.helpers.media_bytes import (
    AAC_CONFIG,
    AAC_CONFIG_44100,
    AC3_CONFIG,
    AC3_FRAME,
    AUDIO,
    AVC_CONFIG,
    AVC_CONFIG_SMALL,
    CUE_POINT,
    DATA,
    HDR_METADATA,
    METADATA,
    VIDEO,
    VP9_CONFIG,
    VP9_KEYFRAME,
    Sent,
    aac_frame,
    frames,
    inter_frame,
    keyframe,
    preamble,
    track_config,
    track_inter_frame,
    track_keyframe,
)

HD = {
    "video": "h264",
    "video_profile": "High",
    "video_level": "3.1",
    "width": 1280,
    "height": 720,
    "frame_rate": 30.0,
    "audio": "aac",
    "audio_profile": "LC",
    "sample_rate": 48000,
    "channels": 2,
}


class Watched:
    """A watch with the log that makes its entries."""

    def __init__(self) -> None:
        self.log = StreamLog(LogLimits())
        self.watch = MediaWatch(0.0)

    def send(self, sent: Iterable[Sent], now_s: float = 0.0) -> None:
        for message in sent:
            self.watch.observe(self.log.append(*message), now_s)

    def send_one(self, type_id: int, payload: bytes, now_s: float = 0.0) -> None:
        self.send([Sent(type_id, 0, payload)], now_s)


def watched(sent: Iterable[Sent] = (), now_s: float = 0.0) -> Watched:
    result = Watched()
    result.send(sent, now_s)
    return result


# --- codecs


def test_nothing_is_said_before_there_is_media() -> None:
    one = watched([Sent(DATA, 0, METADATA), Sent(DATA, 0, CUE_POINT)])
    assert one.watch.detected(1000.0) is None


def test_both_codecs_are_said_with_profile_level_size_and_rates() -> None:
    one = watched([*preamble(), Sent(VIDEO, 0, keyframe())])
    assert one.watch.detected(0.0) == HD


def test_what_was_said_is_not_said_again() -> None:
    one = watched(preamble())
    assert one.watch.detected(0.0)
    one.send([*preamble(), *frames(50)])
    assert one.watch.detected(1000.0) is None


def test_a_change_of_the_picture_is_said() -> None:
    one = watched(preamble())
    one.watch.detected(0.0)
    one.send_one(VIDEO, AVC_CONFIG_SMALL)
    told = one.watch.detected(0.0)
    assert told == HD | {
        "video_profile": "Main",
        "video_level": "3.0",
        "width": 640,
        "height": 360,
        "frame_rate": 25.0,
    }
    assert one.watch.detected(0.0) is None


def test_a_change_of_the_sound_is_said() -> None:
    one = watched(preamble())
    one.watch.detected(0.0)
    one.send_one(AUDIO, AAC_CONFIG_44100)
    assert one.watch.detected(0.0) == HD | {"sample_rate": 44100}


def test_a_stream_without_sound_is_told_after_a_second() -> None:
    one = watched([Sent(VIDEO, 0, AVC_CONFIG), Sent(VIDEO, 0, keyframe())], now_s=10.0)
    assert one.watch.detected(10.9) is None
    told = one.watch.detected(11.0)
    assert told is not None
    assert (told["video"], told["audio"]) == ("h264", None)
    assert "sample_rate" not in told


def test_a_stream_without_a_picture_is_told_after_a_second() -> None:
    one = watched([Sent(AUDIO, 0, AAC_CONFIG), Sent(AUDIO, 0, aac_frame())], now_s=10.0)
    assert one.watch.detected(10.5) is None
    assert one.watch.detected(11.0) == {
        "video": None,
        "audio": "aac",
        "audio_profile": "LC",
        "sample_rate": 48000,
        "channels": 2,
    }


def test_sound_that_comes_late_is_said_when_it_does() -> None:
    one = watched([Sent(VIDEO, 0, AVC_CONFIG)])
    assert one.watch.detected(5.0)
    one.send_one(AUDIO, AAC_CONFIG, 6.0)
    assert one.watch.detected(6.0) is not None


def test_the_frame_rate_of_the_metadata_stands_in_where_the_codec_does_not_tell() -> None:
    one = watched([Sent(VIDEO, 0, VP9_CONFIG), Sent(VIDEO, 0, VP9_KEYFRAME), Sent(AUDIO, 0, AAC_CONFIG)])
    assert "frame_rate" not in (one.watch.detected(0.0) or {})
    one.send([Sent(DATA, 0, METADATA), Sent(AUDIO, 0, AAC_CONFIG_44100)])
    assert (one.watch.detected(0.0) or {})["frame_rate"] == 30.0


def test_a_senseless_frame_rate_in_the_metadata_is_passed_over() -> None:
    absurd = METADATA.replace(b"\x40\x3e\x00", b"\x7f\xf0\x00")  # infinity
    one = watched([Sent(DATA, 0, absurd), Sent(DATA, 0, METADATA[:30])])
    assert one.watch.declared_frame_rate is None


def test_the_size_of_vp9_is_taken_from_its_first_keyframe() -> None:
    one = watched([Sent(VIDEO, 0, VP9_CONFIG), Sent(VIDEO, 0, VP9_KEYFRAME), Sent(AUDIO, 0, AAC_CONFIG)])
    told = one.watch.detected(0.0)
    assert told is not None
    assert (told["video"], told["video_profile"], told["width"], told["height"]) == ("vp9", "Profile 0", 320, 180)
    one.send([Sent(VIDEO, 0, VP9_CONFIG), Sent(VIDEO, 40, VP9_KEYFRAME)])  # as encoders repeat it
    assert one.watch.detected(0.0) is None


def test_the_rate_of_ac3_is_taken_from_its_first_frame() -> None:
    one = watched([Sent(AUDIO, 0, AC3_CONFIG), Sent(AUDIO, 0, AC3_FRAME)])
    told = one.watch.detected(5.0)
    assert told is not None
    assert (told["audio"], told["sample_rate"], told["channels"]) == ("ac3", 48000, 2)
    one.send([Sent(AUDIO, 0, AC3_CONFIG), Sent(AUDIO, 32, AC3_FRAME)])
    assert one.watch.detected(5.0) is None


def test_side_tracks_neither_change_the_words_nor_the_figures() -> None:
    one = watched(preamble())
    assert one.watch.detected(0.0)
    for number in range(30):
        one.send(
            [
                Sent(VIDEO, 1000 * number, AVC_CONFIG),
                Sent(VIDEO, 1000 * number, track_config(1, AVC_CONFIG_SMALL[5:])),
                Sent(VIDEO, 1000 * number, keyframe(number)),
                Sent(VIDEO, 1000 * number, track_keyframe(1, number)),
                Sent(VIDEO, 1000 * number + 500, track_inter_frame(1, number)),
            ]
        )
    assert one.watch.detected(0.0) is None
    report = one.watch.report(30.0)
    assert report is not None
    assert report["frame_rate"] == 1.0
    assert report["keyframe_interval_s"] == 1.0


@pytest.mark.parametrize(
    "payload",
    [b"", b"\x17", b"\x17\x00\x00\x00\x00", b"\x17\x00\x00\x00\x00\x07garbage", b"\x96\x00", b"\x57\x00", HDR_METADATA],
)
def test_video_that_cannot_be_read_is_no_reason_to_stop(payload: bytes) -> None:
    one = watched([Sent(VIDEO, 0, payload), Sent(AUDIO, 0, payload)])
    one.send(preamble())
    assert one.watch.detected(0.0) == HD


def test_a_codec_that_never_tells_is_looked_for_in_a_few_frames_only() -> None:
    one = watched()
    for _ in range(1000):
        one.send_one(VIDEO, b"\x96")
        one.send_one(AUDIO, b"\x95")
    told = one.watch.detected(5.0)
    assert told == {"video": None, "audio": None}
    one.send_one(VIDEO, AVC_CONFIG)
    assert (one.watch.detected(5.0) or {})["video"] == "h264"  # a sequence header is always looked into


def test_frames_before_their_header_are_named_by_their_codec() -> None:
    one = watched([Sent(VIDEO, 0, keyframe()), Sent(AUDIO, 0, aac_frame())])
    assert one.watch.detected(0.0) == {"video": "h264", "audio": "aac"}
    one.send(preamble())
    assert one.watch.detected(0.0) == HD


# --- figures


def test_a_report_comes_every_thirty_seconds_and_no_sooner() -> None:
    one = watched(preamble())
    assert REPORT_INTERVAL_S == 30.0
    assert one.watch.report(29.9) is None
    assert one.watch.report(30.0) is not None
    assert one.watch.report(59.9) is None
    assert one.watch.report(60.1) is not None


def test_a_report_has_bitrates_frame_rate_and_keyframe_interval() -> None:
    one = watched()
    for number in range(750):  # 30 s at 25 frames of 1000 bytes, a keyframe every 2 s
        frame = inter_frame(number, 1000) if number % 50 else keyframe(number, 1000)
        one.send([Sent(VIDEO, 40 * number, frame), Sent(AUDIO, 40 * number, aac_frame(number, 100))])
    assert one.watch.report(30.0) == {
        "video_kbps": 200.0,
        "audio_kbps": 20.0,
        "frame_rate": 25.0,
        "keyframe_interval_s": 2.0,
        "keyframe_interval_max_s": 2.0,
    }


def test_each_report_counts_anew_but_the_interval_across_two_reports_is_not_lost() -> None:
    one = watched([Sent(VIDEO, 0, keyframe(0, 1000)), Sent(VIDEO, 1000, keyframe(1, 1000))])
    one.watch.report(30.0)
    one.send([Sent(VIDEO, 6000, keyframe(2, 3000)), Sent(VIDEO, 7000, keyframe(3, 3000))])
    report = one.watch.report(60.0)
    assert report == {
        "video_kbps": 1.6,
        "audio_kbps": 0.0,
        "frame_rate": 0.07,
        "keyframe_interval_s": 3.0,
        "keyframe_interval_max_s": 5.0,
    }


def test_without_two_keyframes_there_is_no_interval() -> None:
    one = watched([Sent(VIDEO, 0, keyframe())])
    report = one.watch.report(30.0)
    assert report is not None
    assert report["keyframe_interval_s"] is None
    assert report["keyframe_interval_max_s"] is None
    silent = one.watch.report(60.0)
    assert silent is not None
    assert silent["video_kbps"] == 0.0


def test_the_keyframe_interval_is_right_across_a_jump_of_the_publishers_clock() -> None:
    one = watched(
        [
            Sent(VIDEO, 0, keyframe(0)),
            Sent(VIDEO, 2000, keyframe(1)),
            Sent(VIDEO, 2000 + 3_600_000, inter_frame(2)),
            Sent(VIDEO, 4000 + 3_600_000, keyframe(3)),
        ]
    )
    report = one.watch.report(30.0)
    assert report is not None
    assert report["keyframe_interval_max_s"] == 2.0


def test_the_current_rates_are_those_of_the_last_five_seconds() -> None:
    one = watched()
    assert one.watch.rates() == (0.0, 0.0, 0.0)
    one.send_one(VIDEO, inter_frame(0, 100_000))
    for second in range(1, 11):
        one.watch.sample(float(second))
        one.send(frames(10, size=625, gop=100, start_ms=1000 * second, step_ms=100, has_audio=False), float(second))
    one.send_one(AUDIO, aac_frame(0, 1250))
    one.watch.sample(11.0)
    rates = one.watch.rates()
    assert rates.frame_rate == 10.0
    assert rates.audio_bps == 1250 * 8 / 5
    assert rates.video_bps == pytest.approx(5 * (9 * 625 + 1250) * 8 / 5)


def test_two_samples_of_one_moment_give_no_rate() -> None:
    one = watched([Sent(VIDEO, 0, keyframe())])
    one.watch.sample(0.0)
    assert one.watch.rates() == (0.0, 0.0, 0.0)


def test_the_longest_time_between_keyframes_is_of_those_that_ended_since_the_last_counts() -> None:
    one = watched([*preamble(), *frames(25, gop=10, has_audio=False)])  # at 0, 400 and 800 ms
    assert one.watch.take_counts().keyframe_interval_max_ms == 400
    one.send(frames(1, start_ms=3000))
    one.send(frames(1, start_ms=3040))
    assert one.watch.take_counts().keyframe_interval_max_ms == 2200, "it began before, and ended here"
    one.send([Sent(VIDEO, 4000, inter_frame()), Sent(VIDEO, 4000, track_keyframe(1))])
    assert one.watch.take_counts().keyframe_interval_max_ms is None, "no keyframe of the main track came"
