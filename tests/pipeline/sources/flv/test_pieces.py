"""Files to tasks, and the options that say how."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.sources.flv.options import FlvOptions
from headrace.pipeline.sources.flv.pieces import Piece, Range, pack, piece_bytes, split

MB = 1 << 20


@given(st.integers(0, 5000), st.integers(0, 5000), st.integers(1, 1000))
def test_pieces_cover_a_file_once_and_only_the_first_is_longer_than_its_share(
    begin: int, length: int, share: int
) -> None:
    parts = [piece.part for piece in split("f", begin, begin + length, share, tags_before=7)]
    assert [part.begin for part in parts] == [begin, *(part.stop for part in parts[:-1])]
    assert parts[-1].stop == begin + length
    first, *others = [part.stop - part.begin for part in parts]
    assert first <= share * 1.25 + 1
    assert all(other <= share for other in others)
    assert len(set(others[:-1])) <= 1
    assert [part.is_exact for part in parts] == [True] + [False] * (len(parts) - 1)
    assert [part.tags_before for part in parts] == [7] + [None] * (len(parts) - 1)


def test_the_first_piece_is_longer_by_what_the_others_need_to_find_their_place() -> None:
    first, *others = [piece.part.stop - piece.part.begin for piece in split("f", 0, 1664 * MB, 600 * MB)]
    assert others == [512 * MB, 512 * MB]
    assert first == (512 + 128) * MB


@pytest.mark.parametrize(
    ("total", "max_split", "processors", "pieces"),
    [
        (500, 2048, 2, 1),
        (1000, 2048, 2, 2),
        (4100, 2048, 2, 4),
        (4100, 512, 2, 9),
        (4100, 2048, 64, 9),
        (1000, 100, 2, 10),
    ],
    ids=["small", "one each", "two rounds", "asked for", "more processors than are worth it", "asked for less"],
)
def test_a_large_file_gives_every_processor_as_much(total: int, max_split: int, processors: int, pieces: int) -> None:
    most = piece_bytes(total * MB, max_split * MB, processors)
    tasks = pack(split("f", 0, total * MB, most), max_split * MB, processors)
    assert [len(task) for task in tasks] == [1] * pieces
    assert most <= max_split * MB


@given(st.lists(st.integers(0, 200 * MB), max_size=50), st.integers(1, 300), st.integers(1, 9))
def test_tasks_have_every_piece_once_in_order_and_similar_sizes(sizes: list[int], max_mb: int, processors: int) -> None:
    pieces = [Piece(str(number), Range.whole(size)) for number, size in enumerate(sizes)]
    tasks = pack(pieces, max_mb * MB, processors)
    assert [piece for task in tasks for piece in task] == pieces
    loads = [sum(piece.part.size + MB for piece in task) for task in tasks]
    assert all(loads)
    # A task is off by half of its first piece and half of its last.
    assert all(load <= max(max_mb, 64) * MB + max(sizes) + MB for load in loads)


def _file(size: int) -> Piece:
    return Piece("f", Range.whole(size))


def test_many_small_files_become_few_tasks() -> None:
    tasks = pack([_file(100_000)] * 1000, 512 * MB, min_tasks=2)
    assert [len(task) for task in tasks] == [250] * 4


def test_a_little_is_one_task_whatever_the_number_of_processors() -> None:
    assert len(pack([_file(MB)] * 10, 512 * MB, min_tasks=16)) == 1


def test_much_is_spread_over_the_processors() -> None:
    assert [len(task) for task in pack([_file(99 * MB)] * 8, 512 * MB, min_tasks=4)] == [2, 2, 2, 2]


def test_no_files_are_no_tasks() -> None:
    assert pack([], 512 * MB, min_tasks=2) == []


# --- options


def test_options_have_defaults() -> None:
    options = FlvOptions.parse({"path": "rec"})
    assert options.paths == ("rec",)
    assert (options.rows, options.has_payload, options.is_recursive, options.glob) == ("tags", False, True, "*.flv")
    assert (options.max_split_bytes, options.close_after_ms, options.max_batch_bytes) == (2048 * MB, 300_000, 1024 * MB)


def test_options_are_read() -> None:
    options = FlvOptions.parse(
        {
            "paths": '["a", "b"]',
            "rows": "problems",
            "payload": "True",
            "recursive": "false",
            "maxSplitBytes": "10mb",
            "closeAfter": "90s",
            "maxBytesPerBatch": "1000",
        }
    )
    assert options.paths == ("a", "b")
    assert (options.rows, options.has_payload, options.is_recursive) == ("problems", True, False)
    assert (options.max_split_bytes, options.close_after_ms, options.max_batch_bytes) == (10 * MB, 90_000, 1000)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("rows", "frames", "option rows=frames, expected tags or problems"),
        ("payload", "yes", "option payload=yes, expected true or false"),
        ("maxSplitBytes", "0", "option maxSplitBytes=0, expected a number above 0"),
        ("maxSplitBytes", "-1", "option maxSplitBytes=-1"),
        ("closeAfter", "soon", "option closeAfter=soon, expected a duration such as 5m"),
        ("path", "", "option path=, expected a file, a directory or a glob"),
    ],
)
def test_a_wrong_option_is_refused_with_what_was_found_and_expected(name: str, value: str, message: str) -> None:
    with pytest.raises(PipelineError) as caught:
        FlvOptions.parse({"path": "rec", name: value})
    assert message in str(caught.value)
    assert caught.value.condition == "OPTION_INVALID"


def test_addresses_are_not_shown() -> None:
    assert "secret" not in repr(FlvOptions.parse({"path": "s3://key:secret@bucket"}))
