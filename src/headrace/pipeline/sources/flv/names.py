"""Which stream a recording is of, as far as its file name tells.

The recorder writes `{app}_{name}_{YYYYMMDD}_{HHMMSS}.flv`, with `_segNNN` for segments and `-N` where a name was
taken. Everything that is not a letter, digit, "-" or "." became "_" there, and app and name may hold "_" themselves,
so the way back is a guess: the app ends at the first "_". That is right for every app without one.
"""

from __future__ import annotations

import re

_RECORDING = re.compile(r"(_*[^_]+)_(.+)_[0-9]{8}_[0-9]{6}(?:_seg[0-9]{3,})?(?:-[0-9]+)?", re.DOTALL)


def stream_of(path: str) -> str:
    """`app/name`, or the file's name without its suffix if no recorder of ours gave it."""
    name = path.rpartition("/")[2]
    stem = name.rpartition(".")[0] or name
    match = _RECORDING.fullmatch(stem)
    return f"{match[1]}/{match[2]}" if match else stem
