"""Everything but samples and proofs: who came and went, what was found out, what began and ended."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from operator import attrgetter

import numpy as np

from headrace import __version__
from headrace.pipeline.simulate.audience import NEVER
from headrace.pipeline.simulate.chance import Ints
from headrace.pipeline.simulate.destinations import ERRORS
from headrace.pipeline.simulate.encoders import PREFACE_MESSAGES
from headrace.pipeline.simulate.grid import Grid
from headrace.pipeline.simulate.plan import Plan
from headrace.pipeline.simulate.publishers import NOT_BACK, UNPUBLISHED, Span
from headrace.pipeline.simulate.recorders import CLOSED_AFTER_MS
from headrace.pipeline.simulate.recordings import file_bytes
from headrace.pipeline.simulate.relay import feed_name
from headrace.pipeline.simulate.samples import Audience
from headrace.telemetry import events
from headrace.telemetry.events import Event

Told = tuple[int, Event]

_GREETING_BYTES = 3_700  # handshake and answers to commands
_ASKING_BYTES = 3_500
_CLOSED = "closed by peer"


def tell(grid: Grid) -> Iterator[Told]:
    """What happened in a stretch, in no order."""
    told = (*_server(grid.plan), *_publishes(grid), *_streams(grid), *_plays(grid), *_refusals(grid.plan))
    span = grid.span
    for time_ms, event in told:
        if span.start_ms <= time_ms < span.stop_ms:
            yield time_ms, event
    yield from _destination_states(grid.plan, span)


def _server(plan: Plan) -> Iterator[Told]:
    yield plan.span.start_ms, events.ServerStarted(version=__version__)
    yield plan.span.stop_ms, events.ServerStopped(events_lost_total=0)


def _publishes(grid: Grid) -> Iterator[Told]:
    plan, span = grid.plan, grid.span
    streams, table = plan.channels.streams, plan.channels.streams.publishes
    # Opened a moment before the start, closed a moment after the stop.
    near = np.flatnonzero((table.opened_ms < span.stop_ms) & (table.stopped_ms + 100 >= span.start_ms))
    reached = streams.after(near, streams.arrived(near, table.stopped_ms[near]))
    detected_ms = streams.clock.at(streams.clock.before(table.first_ms[near] + 1) + 1)
    for place, one in enumerate(near.tolist()):
        preset = streams.encoders.presets[int(table.channel[one])]
        stream = int(table.stream[one])
        names = {"stream": plan.stream_name(stream), "stream_id": plan.stream_id(stream)}
        conn = f"c{plan.publish_connection[one]}"
        opened_ms, started_ms, stopped_ms = (
            int(column[one]) for column in (table.opened_ms, table.started_ms, table.stopped_ms)
        )
        yield opened_ms, events.ConnectionOpened(conn=conn, viewer=plan.viewer(-1 - int(table.channel[one])))
        yield (
            started_ms,
            events.PublishStarted(
                conn=conn, **names, resumed=bool(table.is_resumed[one]), position=int(table.base.position[one])
            ),
        )
        yield (
            int(table.first_ms[one]),
            events.MetadataReceived(
                **names,
                encoder=preset.encoder,
                declared_width=float(preset.width),
                declared_height=float(preset.height),
                declared_frame_rate=float(preset.frame_rate),
                declared_video_kbps=float(preset.video_kbps),
                declared_audio_kbps=float(preset.audio_kbps),
            ),
        )
        yield (
            min(int(detected_ms[place]), stopped_ms),
            events.CodecDetected(
                **names,
                video="h264",
                video_profile=preset.profile,
                video_level=preset.level,
                width=preset.width,
                height=preset.height,
                frame_rate=float(preset.frame_rate),
                audio="aac",
                audio_profile="LC",
                sample_rate=preset.sample_rate,
                channels=2,
            ),
        )
        position = int(reached.position[place])
        reason = "lost" if table.is_lost[one] else UNPUBLISHED
        yield stopped_ms, events.PublishStopped(conn=conn, **names, reason=reason, position=position)
        sent = int(reached.sent_bytes[place] - table.base.sent_bytes[one])
        closed_ms = stopped_ms if table.is_lost[one] else stopped_ms + 5
        yield closed_ms, _closed(conn, opened_ms, closed_ms, sent + _ASKING_BYTES, _GREETING_BYTES)


def _closed(conn: str, opened_ms: int, closed_ms: int, bytes_in: int, bytes_out: int, reason: str = _CLOSED) -> Event:
    return events.ConnectionClosed(
        conn=conn,
        reason=reason,
        duration_ms=closed_ms - opened_ms,
        bytes_in_total=bytes_in,
        bytes_out_total=bytes_out,
    )


def _streams(grid: Grid) -> Iterator[Told]:
    plan = grid.plan
    reached = plan.channels.streams.at(grid.streams, plan.ended_ms[grid.streams])
    for place, stream in enumerate(grid.streams.tolist()):
        names = {"stream": plan.stream_name(stream), "stream_id": plan.stream_id(stream)}
        path = str(plan.recording(stream))
        position, ended_ms = int(reached.position[place]), int(plan.ended_ms[stream])
        yield (
            plan.recording_opened_ms(stream),
            events.RecordingOpened(path=path, **names, position=0, frame_position=PREFACE_MESSAGES),
        )
        reason = NOT_BACK if plan.channels.broadcasts[stream].is_lost else UNPUBLISHED
        yield ended_ms, events.StreamEnded(**names, reason=reason, position=position)
        if grid.span.start_ms <= ended_ms + CLOSED_AFTER_MS < grid.span.stop_ms:
            yield (
                ended_ms + CLOSED_AFTER_MS,
                events.RecordingClosed(
                    path=path,
                    **names,
                    bytes_total=file_bytes(plan, stream),
                    tags_total=position,
                    duration_ms=int(reached.media_ms[place]),
                ),
            )


def _plays(grid: Grid) -> Iterator[Told]:
    plan, plays = grid.plan, grid.plan.plays
    for place in _inside(plays.opened_ms, grid.span):
        conn, viewer = f"c{plan.play_connection[place]}", plan.viewer(int(plays.viewer[place]))
        yield int(plays.opened_ms[place]), events.ConnectionOpened(conn=conn, viewer=viewer)
    for place in _inside(plays.started_ms, grid.span):
        yield int(plays.started_ms[place]), events.PlayStarted(**_play(plan, place))
    # Closed a moment after the stop: looked for in the stretch before too.
    late = Span(grid.span.start_ms - _CLOSING_MS, grid.span.stop_ms)
    ending = np.array(_inside(plays.stopped_ms, late), np.int64)
    messages, sizes = Audience(grid.plan, ending).totals()
    for place, number, size in zip(ending.tolist(), messages.tolist(), sizes.tolist(), strict=True):
        opened_ms, stopped_ms, picture_ms = (
            int(column[place]) for column in (plays.opened_ms, plays.stopped_ms, plays.picture_ms)
        )
        started_ms = int(plays.started_ms[place])
        lost = plan.channels.broadcasts[int(plays.stream[place])].is_lost
        end = (NOT_BACK if lost else UNPUBLISHED) if plays.is_ended[place] else _CLOSED
        yield (
            stopped_ms,
            events.PlayStopped(
                **_play(plan, place),
                reason=end,
                duration_ms=stopped_ms - started_ms,
                first_keyframe_ms=None if picture_ms == NEVER else picture_ms - started_ms,
                messages_total=number,
                bytes_total=size,
            ),
        )
        closed_ms = stopped_ms + place % _CLOSING_MS
        yield (
            closed_ms,
            _closed(_play(plan, place)["conn"], opened_ms, closed_ms, _ASKING_BYTES, size + _GREETING_BYTES),
        )


_CLOSING_MS = 7


def _play(plan: Plan, place: int) -> dict[str, str]:
    stream = int(plan.plays.stream[place])
    return {
        "conn": f"c{plan.play_connection[place]}",
        "viewer": plan.viewer(int(plan.plays.viewer[place])),
        "stream": plan.stream_name(stream),
        "stream_id": plan.stream_id(stream),
    }


def _inside(time_ms: Ints, span: Span) -> list[int]:
    found: list[int] = np.flatnonzero((time_ms >= span.start_ms) & (time_ms < span.stop_ms)).tolist()
    return found


def _refusals(plan: Plan) -> Iterator[Told]:
    for one, number in zip(plan.refusals, plan.refusal_connection.tolist(), strict=True):
        conn, viewer = f"c{number}", plan.viewer(-100_000 - number)
        yield one.time_ms, events.ConnectionOpened(conn=conn, viewer=viewer)
        asked_ms, closed_ms = one.time_ms + 15, one.time_ms + 40
        closed = _CLOSED
        if one.is_publish:
            code = "NetStream.Publish.BadName"
            yield asked_ms, events.PublishRefused(conn=conn, viewer=viewer, stream=one.stream, reason=code)
            closed = f"publish refused: {code}"
        else:
            code = "NetStream.Play.StreamNotFound"
            yield asked_ms, events.PlayRefused(conn=conn, viewer=viewer, stream=one.stream, reason=code)
        yield closed_ms, _closed(conn, one.time_ms, closed_ms, _ASKING_BYTES, _GREETING_BYTES, closed)


def _destination_states(plan: Plan, span: Span) -> Iterator[Told]:
    changes, feeds = plan.destinations.changes, plan.destinations.feeds
    by_time = attrgetter("time_ms")
    for one in changes[
        bisect_left(changes, span.start_ms, key=by_time) : bisect_left(changes, span.stop_ms, key=by_time)
    ]:
        stream, destination = int(feeds.stream[one.feed]), int(feeds.destination[one.feed])
        yield (
            one.time_ms,
            events.DestinationState(
                destination=plan.destination_name(destination),
                url=plan.destination_url(destination),
                stream=plan.stream_name(stream),
                stream_id=plan.stream_id(stream),
                state=one.state,
                attempt=one.attempt,
                error=None if one.error is None else ERRORS[one.error],
                error_class=one.error,
                feed=feed_name(plan, one.feed),
            ),
        )
