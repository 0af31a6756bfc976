"""The lengths of windows: what `stream_windows` measures by, and what `retention` keeps for how long."""

from __future__ import annotations

WINDOWS_S = (1, 10, 60, 300, 3600)
