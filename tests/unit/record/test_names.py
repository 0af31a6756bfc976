"""Names of recordings: what they look like, and what text from the wire cannot do to them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.record.names import MAX_CANDIDATES, MAX_NAME_BYTES, candidates, recording_stem, segment_stem

NOON_S = 1_772_366_400.0  # 2026-03-01 12:00:00 UTC

HOSTILE: list[tuple[str, str, str, str]] = [
    ("parent directory", "..", "..", "_____"),
    ("path upwards", "live", "../../etc/passwd", "live____.._etc_passwd"),
    ("absolute path", "/", "/etc/passwd", "___etc_passwd"),
    ("Windows path", "live", "..\\..\\C:x", "live____.._C_x"),
    ("NUL", "live", "cam\0.txt", "live_cam_.txt"),
    ("line break and escape", "live", "a\r\n\x1b[31mb", "live_a____31mb"),
    ("hidden file", ".live", ".cam", "_live__cam"),
    ("option of a program", "--help", "-rf", "__help__rf"),
    ("shell", "live", "$(rm -rf ~);`x`|*?", "live___rm_-rf_____x____"),
    ("lone surrogate", "live", "cam\udcff", "live_cam_"),
    ("text written backwards", "live", "\u202egpj.exe", "live__gpj.exe"),
    ("no app", "", "cam", "unnamed_cam"),
    ("no name", "live", "", "live_unnamed"),
    ("letters of other scripts", "прямой", "カメラ-१.é", "прямой_カメラ-१.é"),
    ("an app with an instance", "live/room1", "cam", "live_room1_cam"),
]

any_text = st.text(st.characters(), max_size=300)  # lone surrogates and control characters included


def test_a_name_has_app_stream_and_the_start_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    assert recording_stem("live", "cam1", NOON_S) == "live_cam1_20260301_120000"
    assert recording_stem("live", "cam1", NOON_S + 0.999) == "live_cam1_20260301_120000"


@pytest.mark.parametrize(("number", "suffix"), [(1, "_seg001"), (42, "_seg042"), (1000, "_seg1000")])
def test_segments_are_numbered_with_three_digits_and_more_when_needed(number: int, suffix: str) -> None:
    assert segment_stem("live_cam1_20260301_120000", number) == "live_cam1_20260301_120000" + suffix


@pytest.mark.parametrize(("app", "name", "expected"), [case[1:] for case in HOSTILE], ids=[case[0] for case in HOSTILE])
def test_text_from_the_wire_is_made_harmless(app: str, name: str, expected: str) -> None:
    assert recording_stem(app, name, NOON_S) == f"{expected}_20260301_120000"


@given(any_text, any_text, st.integers(0, 2**32), st.integers(1, 10**9), st.integers(1, 1000))
def test_any_app_and_name_give_one_visible_file_name_that_fits(
    app: str, name: str, started_at_s: int, segment: int, first: int
) -> None:
    stem = segment_stem(recording_stem(app, name, started_at_s), segment)
    for _, file_name in candidates(stem, first):
        assert len(file_name.encode("utf-8")) <= MAX_NAME_BYTES
        assert Path(file_name).name == file_name
        assert os.path.basename(file_name) == file_name
        assert not file_name.startswith((".", "-", "~"))
        assert file_name.isprintable() or any(ord(c) >= 0x300 for c in file_name)
        assert not set(file_name) & set("/\\:*?\"<>|\0\n\r\t ;&$`'")


@pytest.mark.parametrize("letter", ["a", "é", "カ", "𝒳"])
def test_long_names_are_cut_to_fit_and_stay_different(letter: str, tmp_path: Path) -> None:
    stems = {recording_stem(letter * 4000 + end, letter * 4000 + end, NOON_S) for end in ("1", "2", "/", "\\")}
    assert len(stems) == 4
    for stem in stems:
        (tmp_path / f"{segment_stem(stem, 10**9)}-1000.flv").touch()  # the file system agrees


def test_a_name_that_fits_is_not_touched() -> None:
    assert recording_stem("a" * 64, "b" * 128, NOON_S) == f"{'a' * 64}_{'b' * 128}_20260301_120000"
    assert recording_stem("a" * 65, "b", NOON_S).startswith("a" * 55 + "-")


def test_a_very_long_name_costs_no_more_than_its_hash() -> None:
    stem = recording_stem("live", "\udcff" * (1 << 20), NOON_S)
    assert len(stem.encode()) < MAX_NAME_BYTES


def test_candidates_count_up_before_the_suffix_and_end() -> None:
    names = list(candidates("stem"))
    assert names[:3] == [(1, "stem.flv"), (2, "stem-2.flv"), (3, "stem-3.flv")]
    assert len(names) == MAX_CANDIDATES
    assert next(candidates("stem", 7)) == (7, "stem-7.flv")
