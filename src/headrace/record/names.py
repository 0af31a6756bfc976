"""File names of recordings: `{app}_{name}_{YYYYMMDD}_{HHMMSS}.flv`, and `…_seg001.flv` for segments.

The date and time are the start of the recording in UTC: they neither repeat nor jump when clocks change, and
servers in different places agree. App and name come from the wire, where they may be any text of any length.
Pure: whether a name is taken is known only to the file system, which `flvfile` asks for one of `candidates`.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterator
from datetime import UTC, datetime

SUFFIX = ".flv"

# ext4, XFS, APFS and NTFS stop at 255. The fixed rest is at most 49: two underscores, 15 of date and time,
# "_seg" and up to 10 digits, "-" and up to 4, ".flv", with some to spare. 64 + 128 + 49 fit.
MAX_NAME_BYTES = 255
_MAX_APP_BYTES = 64
_MAX_STREAM_NAME_BYTES = 128

# So many recordings of one name in one second are a mistake or an attack; each attempt is a system call.
MAX_CANDIDATES = 1000

_HASH_DIGITS = 8
_EMPTY = "unnamed"
_SAFE_PUNCTUATION = frozenset("-_.")


def recording_stem(app: str, name: str, started_at_s: float) -> str:
    """The name of a recording without number and suffix. `started_at_s` is in seconds since 1970 (UTC)."""
    started_at = datetime.fromtimestamp(started_at_s, UTC)
    app_part = _safe_part(app, _MAX_APP_BYTES)
    name_part = _safe_part(name, _MAX_STREAM_NAME_BYTES)
    return f"{app_part}_{name_part}_{started_at:%Y%m%d_%H%M%S}"


def segment_stem(stem: str, number: int) -> str:
    return f"{stem}_seg{number:03d}"


def candidates(stem: str, first: int = 1) -> Iterator[tuple[int, str]]:
    """(1, `stem.flv`), (2, `stem-2.flv`), … from number `first` on: the names to try until one is free."""
    for number in range(first, first + MAX_CANDIDATES):
        yield number, f"{stem}{SUFFIX}" if number == 1 else f"{stem}-{number}{SUFFIX}"


def _safe_part(text: str, max_bytes: int) -> str:
    """Letters, marks and digits of any script, and "-", "_" and "." inside; the rest becomes "_".

    That leaves no separator of any system, no control or bidirectional character, no lone surrogate, no shell
    or Windows special. A leading dot would hide the file, a leading dash would make it an option.
    """
    # The cap comes first: nobody needs 16 MB of a name looked at. The hash still tells long names apart.
    safe = "".join(c if _is_safe(c) else "_" for c in text[: max_bytes + 1])
    inside = safe.lstrip(".-")
    safe = "_" * (len(safe) - len(inside)) + inside
    if len(text) <= max_bytes and len(safe.encode()) <= max_bytes:
        return safe or _EMPTY
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_DIGITS]
    kept = safe.encode()[: max_bytes - _HASH_DIGITS - 1].decode("utf-8", "ignore")
    return f"{kept}-{digest}"


def _is_safe(character: str) -> bool:
    return character in _SAFE_PUNCTUATION or unicodedata.category(character)[0] in "LMN"
