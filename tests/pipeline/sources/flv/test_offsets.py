"""Offsets: what a stream takes in next, what it forgets, and that nothing is read twice or never."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.pipeline.sources.flv.listing import FoundFile
from headrace.pipeline.sources.flv.offsets import Limits, Offset, Progress, advance

CLOSE_AFTER_MS = 1000
TAG_BYTES = 10  # in these tests every tag has ten bytes, and a file nothing else
ALL = Limits(CLOSE_AFTER_MS, None, None)


def whole_tags(path: str, position: int, stop: int) -> tuple[int, int]:
    count = max(0, stop - position) // TAG_BYTES
    return position + count * TAG_BYTES, count


def step(start: Offset, now_ms: int, *files: FoundFile, limits: Limits = ALL) -> Offset:
    """The next offset, as a restart finds it in the checkpoint."""
    end = advance(start, files, now_ms, limits, whole_tags)
    return Offset.from_json(json.loads(json.dumps(end.to_json())))


def test_a_growing_file_is_taken_in_up_to_its_last_whole_tag() -> None:
    end = step(Offset(), 5000, FoundFile("a", 57, 4900))
    assert end == Offset(-1, {"a": Progress(50, 5, 4900)})
    assert step(end, 5100, FoundFile("a", 59, 5050)) == end
    assert step(end, 5200, FoundFile("a", 83, 5150)).files == {"a": Progress(80, 8, 5150)}


def test_nothing_new_gives_back_the_very_offset() -> None:
    start = Offset(5, {"a": Progress(50, 5, 4900)})
    assert advance(start, [FoundFile("a", 57, 4900)], 5000, ALL, whole_tags) is start
    assert advance(start, [], 5000, ALL, whole_tags) is start


def test_a_closed_file_is_taken_in_to_its_last_byte() -> None:
    assert step(Offset(), 9000, FoundFile("a", 57, 8000)).files == {"a": Progress(57, None, 8000)}


def test_the_rest_of_a_file_comes_when_it_is_closed() -> None:
    start = Offset(-1, {"a": Progress(50, 5, 4900)})
    assert step(start, 5899, FoundFile("a", 57, 4900)) == start
    assert step(start, 5900, FoundFile("a", 57, 4900)).files == {"a": Progress(57, None, 4900)}


def test_a_finished_file_is_forgotten_with_the_next_batch_and_never_read_again() -> None:
    files = [FoundFile("a", 50, 1000)]
    first = step(Offset(), 5000, *files)
    assert step(first, 5500, *files) == first  # nothing to read, so no batch for the sake of forgetting
    files.append(FoundFile("b", 20, 6000))
    second = step(first, 6100, *files)
    assert second == Offset(1000, {"b": Progress(20, 2, 6000)})
    assert step(second, 6200, *files) == second


def test_a_file_that_may_still_grow_is_not_forgotten() -> None:
    files = [FoundFile("a", 50, 5500), FoundFile("b", 20, 6000)]
    start = Offset(-1, {"a": Progress(50, 5, 5500)})
    assert set(step(start, 6100, *files).files) == {"a", "b"}


def test_the_horizon_does_not_pass_a_file_that_waits() -> None:
    # One at a time, the oldest first. Each is forgotten when the next has begun, which the horizon then may reach.
    limits = Limits(CLOSE_AFTER_MS, 1, None)
    files = [FoundFile(name, 10, mtime_ms) for name, mtime_ms in (("c", 300), ("a", 100), ("b", 100), ("d", 300))]
    seen: list[str] = []
    offset, horizons = Offset(), []
    for _ in range(6):
        before = offset
        offset = step(offset, 9000, *files, limits=limits)
        seen += [path for path in offset.files if path not in before.files]
        horizons.append(offset.horizon_ms)
    assert seen == ["a", "b", "c", "d"]
    assert horizons == [-1, 100, 100, 300, 300, 300]


def test_admission_is_by_bytes_and_by_files() -> None:
    growing = [FoundFile(name, 100, 8900 + number) for number, name in enumerate("abc")]
    by_bytes = step(Offset(), 9000, *growing, limits=Limits(CLOSE_AFTER_MS, 150, None))
    assert {path: progress.position for path, progress in by_bytes.files.items()} == {"a": 100, "b": 50}
    by_files = step(Offset(), 9000, *growing, limits=Limits(CLOSE_AFTER_MS, None, 2))
    assert set(by_files.files) == {"a", "b"}
    closed = step(Offset(), 99_000, *growing, limits=Limits(CLOSE_AFTER_MS, 1, None))
    assert closed.files == {"a": Progress(100, None, 8900)}  # a closed file is taken in whole


def test_an_empty_file_is_looked_at_once_and_blocks_nothing() -> None:
    files = [FoundFile("empty", 0, 100), FoundFile("b", 10, 200)]
    first = step(Offset(), 9000, *files)
    assert first.files == {"empty": Progress(0, None, 100), "b": Progress(10, None, 200)}
    assert step(first, 9100, *files) == first
    last = step(first, 9200, *files, FoundFile("c", 10, 9150))
    assert last == Offset(200, {"c": Progress(10, 1, 9150)})


def test_a_file_that_is_gone_is_forgotten_in_its_time() -> None:
    start = Offset(-1, {"gone": Progress(50, 5, 5000)})
    soon = step(start, 5500, FoundFile("b", 10, 5400))
    assert set(soon.files) == {"gone", "b"}
    later = step(soon, 6400, FoundFile("b", 20, 6300))
    assert later == Offset(5000, {"b": Progress(20, 2, 6300)})


def test_a_file_that_became_shorter_is_left_alone() -> None:
    start = Offset(-1, {"a": Progress(50, 5, 5000)})
    assert step(start, 5500, FoundFile("a", 30, 5400)) == start


def test_an_offset_holds_as_many_files_as_changed_lately_however_many_there_were() -> None:
    offset, files = Offset(), []
    for number in range(500):
        now_ms = 10_000 + number * 100  # a new recording every 100 ms, none grows after its first
        files.append(FoundFile(f"f{number}", 50, now_ms))
        offset = step(offset, now_ms, *files)
    assert len(offset.files) <= CLOSE_AFTER_MS // 100 + 2


actions = st.lists(
    st.tuples(st.sampled_from(("grow", "create", "wait", "look", "look")), st.integers(0, 200)), max_size=60
)


@settings(deadline=None)
@given(actions, st.sampled_from((None, 1, 45)), st.sampled_from((None, 1, 3)))
def test_every_whole_tag_is_read_once_whatever_happens(
    todo: list[tuple[str, int]], max_bytes: int | None, max_files: int | None
) -> None:
    """A recorder that appends and starts files, and a stream that looks at them now and then."""
    sizes: dict[str, int] = {}
    changed: dict[str, int] = {}
    read: dict[str, list[tuple[int, int]]] = {}
    now_ms, offset = 0, Offset()

    def look(limits: Limits) -> bool:
        nonlocal offset
        end = step(offset, now_ms, *(FoundFile(path, sizes[path], changed[path]) for path in sizes), limits=limits)
        for path, progress in end.files.items():
            begin = offset.files[path].position if path in offset.files else 0
            if progress.position > begin:
                read.setdefault(path, []).append((begin, progress.position))
        is_new = end != offset
        offset = end
        return is_new

    for action, amount in todo:
        now_ms += 1
        fresh = [path for path in sizes if now_ms - changed[path] < CLOSE_AFTER_MS]
        if action == "create":
            path = f"f{len(sizes)}"
            sizes[path], changed[path] = 0, now_ms
        elif action == "grow" and fresh:
            path = fresh[amount % len(fresh)]
            sizes[path] += amount
            changed[path] = now_ms
        elif action == "wait":
            now_ms += amount * 10
        elif action == "look":
            look(Limits(CLOSE_AFTER_MS, max_bytes, max_files))
    now_ms += CLOSE_AFTER_MS
    while look(Limits(CLOSE_AFTER_MS, max_bytes, max_files)):
        pass
    for path, size in sizes.items():
        ranges = read.get(path, [])
        assert [begin for begin, _ in ranges] == [0, *(end for _, end in ranges[:-1])][: len(ranges)]
        assert (ranges[-1][1] if ranges else 0) == size
