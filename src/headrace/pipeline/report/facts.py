"""What a report says, as values: everything the pages show and nothing else. Pure.

Names and units are those of the JSON form, so a field that is renamed here is renamed for its readers. Times are UTC.
Lists that could be long have a cap, and beside them how many there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

Status = Literal["good", "warning", "bad", "unknown"]

# What a person reads, and what keeps a page of a destination that failed all day below a megabyte.
MAX_INCIDENTS = 100
MAX_OUTAGES = 20  # of each destination
MAX_STATES = 400  # of each destination
MAX_DESTINATIONS = 40
MAX_RECORDINGS = 100
MAX_POINTS = 1440
MAX_REASONS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What was published, as the server saw it."""

    video_codec: str | None
    audio_codec: str | None
    width: int | None
    height: int | None
    declared_frame_rate: float | None
    declared_video_kbps: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A window of the publisher's samples, by time of arrival."""

    started_at: datetime
    video_bps: int | None
    audio_bps: int | None
    total_bps: int | None
    frame_rate: float | None
    starved_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyframePoint:
    started_at: datetime
    interval_max_ms: int | None  # to a second: samples tell no more


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingest:
    """How the stream came in."""

    window_s: int
    points: tuple[Point, ...]
    keyframe_window_s: int
    keyframe_points: tuple[KeyframePoint, ...]
    total_bps_mean: float | None
    total_bps_max: int | None
    frame_rate_mean: float | None
    keyframe_interval_mean_ms: float | None
    keyframe_interval_max_ms: int | None
    keyframe_interval_from: Literal["recording", "samples"] | None
    av_skew_max_ms: int | None  # furthest from 0
    drift_ms: int | None  # wall time that brought no media, over all
    good_ms: int
    ok_ms: int
    bad_ms: int
    no_data_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """One kind of issue over the whole broadcast, with its worst value."""

    name: str
    severity: str
    windows: int
    window_s: int
    first_at: datetime
    last_at: datetime
    measured: float | None
    threshold: float | None
    unit: str | None
    finding: str
    advice: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    number: int  # as the charts mark it, in order of time
    incident_id: str
    kind: str
    started_at: datetime
    ended_at: datetime | None
    duration_ms: int | None
    destination: str | None
    viewers: int | None
    cause: str | None
    cause_number: int | None
    destinations_dropped: tuple[str, ...]
    viewers_exited: int
    has_recovered: bool
    what: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A state of a destination."""

    state: str
    started_at: datetime
    ended_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    started_at: datetime
    ended_at: datetime
    duration_ms: int
    has_ended: bool
    is_at_start: bool  # it had not been connected before
    attempts: int
    error: str | None
    error_class: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The proof of delivery of one reader."""

    reader: str
    name: str
    feed: str
    is_final: bool
    ingested: int
    before_start: int
    delivered: int
    skipped: int
    skipped_by_reason: dict[str, int]
    after_end: int
    pending: int
    hole_messages: int
    overlap_messages: int
    is_accounted: bool
    adds_up: bool
    far_candidates: int | None
    far_node: str | None
    far_stream: str | None
    near_frames: int | None
    far_frames: int | None
    far_missing: int | None
    far_duplicated: int | None
    far_reordered: int | None
    far_corrupted: int | None
    far_unknown: int | None
    far_misheaded: int | None
    far_unexplained: int | None
    far_end: str  # in words


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    name: str
    url: str
    state: str
    live_ms: int | None
    connected_ms: int
    availability: float | None
    attempts: int
    reconnects: int
    failures: int
    failed_attempts: int
    mttr_ms: int | None
    time_to_connect_ms: int | None
    last_error: str | None
    last_error_class: str | None
    bytes: int | None
    messages: int | None
    max_queue_age_ms: int | None
    down_ms: int
    outages_total: int
    outages: tuple[Outage, ...]
    missed: int | None  # None: nothing was proved
    missed_by_reason: dict[str, int]
    states_total: int
    states: tuple[Span, ...]
    audits: tuple[Audit, ...]
    advice: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewerPoint:
    at: datetime
    viewers: int  # the most in this part of the curve


@dataclass(frozen=True, slots=True, kw_only=True)
class Audience:
    attempts: int
    plays: int
    open_plays: int
    unique_viewers: int
    peak_viewers: int
    mean_viewers: float | None
    watch_ms: int
    startup_ms: int | None
    startup_median_ms: float | None
    startup_max_ms: int | None
    startup_score: float | None
    exits_before_video: int
    blocked_plays: int
    blocked_ms: int
    bytes: int
    dropped_by_reason: dict[str, int]
    curve: tuple[ViewerPoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    path: str
    file_name: str
    opened_at: datetime | None
    closed_at: datetime | None
    is_open: bool
    error: str | None
    duration_ms: int | None
    bytes: int | None
    tags: int | None
    video_codec: str | None
    audio_codec: str | None
    video_frames: int | None
    audio_frames: int | None
    keyframes: int | None
    is_in_lake: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusals:
    """Plays and publishes of this name that were refused while it was live, or ever where it never was."""

    plays: int
    publishes: int
    by_reason: dict[str, int]
    first_at: datetime
    last_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    node: str
    stream: str
    stream_id: str | None
    state: Literal["live", "ended", "cut_off", "refused"]
    started_at: datetime
    last_seen_at: datetime  # its end, or the newest that the tables know of
    duration_ms: int
    live_ms: int  # with a publisher
    publishers: int  # connections that published it, one after the other
    end_reason: str | None
    status: Status
    verdict: str
    source: Source
    ingest: Ingest | None  # None: nothing was measured
    issues: tuple[Issue, ...]
    incidents_total: int
    incidents: tuple[Incident, ...]
    destinations_total: int
    destinations: tuple[Destination, ...]
    recorders: tuple[Audit, ...]
    audience: Audience | None  # None: nobody tried
    refusals: Refusals | None
    recordings_total: int
    recordings: tuple[Recording, ...]
