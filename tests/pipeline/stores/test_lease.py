"""Two never hold a lake: whoever comes between whichever steps of another, and however long that one sleeps there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.stores.lease import LOST_S, TAKEN_OVER_S, Lease, is_held
from headrace.pipeline.stores.store import Entry, Note, parse_note


class World:
    """A store of strong consistency, its clock and ours. Before any of its steps something else may happen."""

    address = "s3a://bucket/lake"

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.files: dict[str, tuple[str, float]] = {}
        self.steps = 0
        self.before: dict[int, Callable[[], None]] = {}
        self.leases: list[Lease] = []

    def _step(self) -> None:
        happening = self.before.pop(self.steps, None)
        self.steps += 1
        if happening is not None:
            happening()

    def entries(self, directory: str) -> list[Entry]:
        self._step()
        folder = f"{directory}/"
        return [
            Entry(name.removeprefix(folder), False, len(text), changed_s, ())
            for name, (text, changed_s) in self.files.items()
            if name.startswith(folder)
        ]

    def read_note(self, name: str) -> Note | None:
        self._step()
        found = self.files.get(name)
        return None if found is None else parse_note(found[0].encode())

    def put_note(self, name: str, content: Note) -> None:
        self._step()
        self.files[name] = (json.dumps(content), self.now_s)

    def remove(self, name: str) -> None:
        self._step()
        self.files.pop(name, None)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def world() -> Iterator[World]:
    found = World()
    yield found
    for one in found.leases:  # their threads end
        one.give_back()


def lease(world: World, job: str) -> Lease:
    world.leases.append(Lease(world, job, clock=lambda: world.now_s, wait=world.sleep))
    return world.leases[-1]


def has_taken(one: Lease) -> bool:
    """And may write."""
    try:
        one.take()
        one.require()
    except PipelineError:
        return False
    return True


@pytest.mark.parametrize("slept_s", [0.0, LOST_S - 1, LOST_S + 1, TAKEN_OVER_S + 1])
@pytest.mark.parametrize("step", range(4))
def test_whoever_comes_in_between_two_never_have_it(world: World, step: int, slept_s: float) -> None:
    first, second = lease(world, "first"), lease(world, "second")
    taken: list[bool] = []

    def come_between() -> None:
        world.sleep(slept_s)
        taken.append(has_taken(second))

    world.before[step] = come_between
    is_first = has_taken(first)
    world.before.clear()
    if not taken:  # fewer steps than that
        come_between()
        is_first = not _is_refused(first)
    is_second = taken[0] and not _is_refused(second)
    assert not (is_first and is_second)
    if not slept_s:
        assert is_first or is_second, "one of them has it"


def _is_refused(one: Lease) -> bool:
    try:
        one.require()
    except PipelineError:
        return True
    return False


def test_a_renewal_that_reached_the_store_too_late_is_none(world: World) -> None:
    first, second = lease(world, "first"), lease(world, "second")
    first.take()

    def sleep_on_the_way() -> None:
        world.sleep(TAKEN_OVER_S + 1)
        second.take()

    world.before[world.steps] = sleep_on_the_way
    with pytest.raises(PipelineError, match="was not held for 61 s, another job may have it by now"):
        first.renew()
    with pytest.raises(PipelineError, match="may have it by now"):
        first.require()
    second.require()


def test_the_holder_is_named_and_how_long_it_is_silent(world: World) -> None:
    holder = lease(world, "headrace pipeline run")
    holder.take()
    with pytest.raises(PipelineError, match=r"lake is in use by headrace pipeline run, process \d+ on [^ ,]+: one job"):
        lease(world, "another").take()
    assert len(world.files) == 1, "who was refused leaves nothing"
    world.sleep(30)
    with pytest.raises(PipelineError, match=r"process \d+ on [^ ,]+, not heard of for 30 s: one job"):
        lease(world, "another").take()
    assert is_held(world, world.now_s)
    world.sleep(31)
    assert not is_held(world, world.now_s)
    successor = lease(world, "another")
    successor.take()
    assert len(world.files) == 1
    successor.give_back()
    assert world.files == {}


def test_what_is_no_flag_of_ours_keeps_others_out_until_it_is_old(world: World) -> None:
    world.files = {"_lease/x.json": ("no JSON", world.now_s), "_lease/y.json.new": ("{}", world.now_s)}
    with pytest.raises(PipelineError, match="in use by another job"):
        lease(world, "a job").take()
    world.sleep(TAKEN_OVER_S + 1)
    lease(world, "a job").take()
