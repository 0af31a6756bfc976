"""How long what is kept: finer measures for hours, coarser ones for years.

    1s=3h,10s=3h,1m=15d,5m=63d,1h=455d     windows of stream_windows by their length; the longest is for all else
    15d                                     what the tables are made of (bronze), and groups of pictures

Owns the spelling and the arithmetic. Who deletes is `compact`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.resolutions import WINDOWS_S

_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_SPAN = re.compile(r"([0-9]{1,9})([smhd])")

DEFAULT_TIERS = "1s=3h,10s=3h,1m=15d,5m=63d,1h=455d"
DEFAULT_BRONZE = "15d"


@dataclass(frozen=True, slots=True)
class Retention:
    """In milliseconds. By a window's length in seconds: how long it is kept."""

    tiers_ms: dict[int, int] = field(default_factory=lambda: parse_tiers(DEFAULT_TIERS))
    bronze_ms: int = field(default_factory=lambda: parse_span_ms("keep-bronze", DEFAULT_BRONZE))

    @property
    def longest_ms(self) -> int:
        return max(self.tiers_ms.values())


def parse_tiers(text: str) -> dict[int, int]:
    """Every window's length must be told, so that nothing is deleted or kept by an oversight."""
    tiers: dict[int, int] = {}
    for one in text.split(","):
        size, equals, kept = one.strip().partition("=")
        window_s = parse_span_ms("keep", size) // 1000
        if not equals or window_s not in WINDOWS_S or window_s in tiers:
            raise PipelineError("OPTION_INVALID", option="keep", value=one.strip(), expected=_expected())
        tiers[window_s] = parse_span_ms("keep", kept)
    missing = sorted(set(WINDOWS_S) - tiers.keys())
    if missing:
        raise PipelineError("OPTION_INVALID", option="keep", value=text, expected=f"{_expected()}, also {missing[0]}s")
    return tiers


def parse_span_ms(option: str, text: str) -> int:
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise PipelineError("OPTION_INVALID", option=option, value=text, expected="a time such as 3h or 15d")
    return int(match[1]) * _UNIT_S[match[2]] * 1000


def _expected() -> str:
    return f"each window's length once with how long it is kept, as in {DEFAULT_TIERS}"
