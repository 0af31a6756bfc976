from __future__ import annotations

import inspect
import re

import pytest

from headrace.pipeline.report import advice
from headrace.pipeline.report.facts import Source
from headrace.pipeline.tables import stream_health
from headrace.relay.failure import ErrorClass
from headrace.stream.cursor import SkipReason

SOURCE = Source(
    video_codec="h263",
    audio_codec="speex",
    width=640,
    height=360,
    declared_frame_rate=25.0,
    declared_video_kbps=1000.0,
)
CODE = inspect.getsource(stream_health)
NAMES = sorted(
    set(re.findall(r'_issue\(\s*"(\w+)"', CODE))
    | {name + end for name in re.findall(r'_off_declared\("(\w+)"', CODE) for end in ("Low", "High")}
)


def test_the_names_of_all_issues_are_found() -> None:
    assert len(NAMES) == 15
    assert {"gopSizeLong", "audioBitrateHigh", "audioSampleRate"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_issue_that_the_tables_know_has_a_finding_and_advice(name: str) -> None:
    has_number = name not in ("videoCodec", "audioCodec")
    value, threshold = (6543.0, 4000.0) if has_number else (None, None)
    issue = advice.Measured(name=name, value=value, threshold=threshold, unit="x", source=SOURCE)
    assert not advice.finding(issue).startswith(name)
    assert advice.finding(issue).endswith(".")
    assert advice.advice(issue)


@pytest.mark.parametrize(
    ("name", "value", "threshold", "finding"),
    [
        ("gopSizeOver", 10_000, 8000, "Keyframes came up to 10.0 s apart, beyond 8 s: "),
        ("videoIngestionStarved", 6012, 2000, "Nothing came in for up to 6.0 s; players hold about 2 s in reserve"),
        (
            "bitrateLow",
            350,
            500,
            "Video came at 350 kbit/s, less than half of what the encoder announced (the threshold ",
        ),
        ("frameRateHigh", 120, 60.5, "120 frames a second came in; no platform takes more than 60."),
        ("audioSampleRate", 32000, 44100, "The audio sample rate is 32,000 Hz; platforms want 44,100 or 48,000 Hz."),
        ("videoCodec", None, None, "The video codec is h263; platforms take H.264"),
    ],
)
def test_findings_hold_the_measured_value_and_the_threshold(
    name: str, value: float | None, threshold: float | None, finding: str
) -> None:
    issue = advice.Measured(name=name, value=value, threshold=threshold, unit=None, source=SOURCE)
    assert advice.finding(issue).startswith(finding)


def test_the_group_of_pictures_in_the_advice_fits_the_frame_rate() -> None:
    issue = advice.Measured(name="gopSizeLong", value=6000, threshold=4000, unit="ms", source=SOURCE)
    assert "-g 50 (two seconds at 25 frames a second)" in str(advice.advice(issue))


@pytest.mark.parametrize("error_class", [one.value for one in ErrorClass])
def test_every_class_of_failure_has_words_and_advice(error_class: str) -> None:
    assert error_class not in advice.error_words(error_class).split()[:2]
    assert advice.destination_advice(error_class)


@pytest.mark.parametrize("reason", [*(one.value for one in SkipReason), "not_connected", "disconnected", "error"])
def test_every_reason_for_a_skip_has_words(reason: str) -> None:
    assert advice.skip_words(reason) != reason
