"""How numbers, times and names are written for people. Pure: what they mean is the caller's business."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from headrace.units import printable

MAX_NAME_CHARACTERS = 200  # a name may be 64 KB on the wire, and it is on every line of a page


def duration(duration_ms: float | None) -> str:
    """`0.4 s`, `40 s`, `1 min 5 s`, `1 h 02 min`, `2 d 3 h`: two units at most."""
    if duration_ms is None:
        return "unknown"
    if duration_ms < 0:
        return "-" + duration(-duration_ms)
    if duration_ms < 9_950:
        tenths = round(duration_ms / 100)
        if tenths == 0 and duration_ms > 0:
            return f"{max(round(duration_ms), 1)} ms"
        return f"{tenths // 10} s" if tenths % 10 == 0 else f"{tenths / 10:.1f} s"
    minutes, seconds = divmod(round(duration_ms / 1000), 60)
    if minutes == 0:
        return f"{seconds} s"
    if minutes < 60:
        return f"{minutes} min {seconds} s" if seconds else f"{minutes} min"
    hours, minutes = divmod(round(duration_ms / 60_000), 60)
    if hours < 24:
        return f"{hours} h {minutes:02d} min"
    days, hours = divmod(round(duration_ms / 3_600_000), 24)
    return f"{days} d {hours} h"


def seconds(duration_ms: float) -> str:
    """To a tenth, as intervals between keyframes are compared: `6.0 s`."""
    return f"{duration_ms / 1000:.1f} s"


def count(number: float | None) -> str:
    return "unknown" if number is None else f"{round(number):,}"


def counted(number: int, one: str, many: str | None = None) -> str:
    """`1 viewer`, `1,204 messages`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def bitrate(bps: float | None) -> str:
    if bps is None:
        return "unknown"
    return f"{bps / 1_000_000:.1f} Mbit/s" if bps >= 1_000_000 else f"{round(bps / 1000):,} kbit/s"


def rate(frames_per_second: float | None) -> str:
    if frames_per_second is None:
        return "unknown"
    return f"{frames_per_second:.2f}".rstrip("0").rstrip(".")


def size(number: int | None) -> str:
    if number is None:
        return "unknown"
    if number < 1000:
        return counted(number, "byte")
    scaled = float(number)
    for unit in ("kB", "MB", "GB"):
        scaled /= 1000
        if scaled < 999.5:
            return f"{scaled:.1f} {unit}" if scaled < 99.95 else f"{scaled:.0f} {unit}"
    return f"{scaled / 1000:,.1f} TB"


def share(part: float | None) -> str:
    """A percentage that says 100 % only where nothing is missing."""
    if part is None:
        return "unknown"
    percent = part * 100
    if part < 1 and percent > 99.99:
        percent = 99.99
    return f"{percent:.2f}".rstrip("0").rstrip(".") + " %"


def moment(when: datetime | None) -> str:
    return "unknown" if when is None else f"{when.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def clock(when: datetime | None, since: datetime | None = None) -> str:
    """Where the day is clear already: that of `since`, or any if there is none."""
    if when is None:
        return "unknown"
    is_same_day = since is None or when.astimezone(UTC).date() == since.astimezone(UTC).date()
    return f"{when.astimezone(UTC):{'%H:%M:%S' if is_same_day else '%m-%d %H:%M:%S'}}"


def name(text: str | None, limit: int = MAX_NAME_CHARACTERS) -> str:
    """What came from the wire, on one line, with nothing in it that moves a cursor or turns the text around."""
    if text is None:
        return "unknown"
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return printable(cut)


def listed(items: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]
