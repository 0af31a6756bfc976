from __future__ import annotations

import threading

from headrace.pipeline.jobs.sharing import Sharing

DEADLINE_S = 30


def test_many_use_it_at_once_and_one_changes_it_alone() -> None:
    sharing, both_in, leave = Sharing(), threading.Barrier(3, timeout=DEADLINE_S), threading.Event()
    happened: list[str] = []

    def use() -> None:
        with sharing.used():
            both_in.wait()
            assert leave.wait(DEADLINE_S)
            happened.append("used")

    def change() -> None:
        with sharing.alone():
            happened.append("changed")

    def use_later() -> None:
        with sharing.used():
            happened.append("used later")

    users = [threading.Thread(target=use) for _ in range(2)]
    for thread in users:
        thread.start()
    both_in.wait()
    changer = threading.Thread(target=change)
    changer.start()
    while not sharing._is_wanted_alone:
        pass
    late = threading.Thread(target=use_later)
    late.start()
    late.join(0.05)
    assert happened == []
    leave.set()
    for thread in (*users, changer, late):
        thread.join(DEADLINE_S)
    assert happened == ["used", "used", "changed", "used later"]


def test_it_is_free_again_after_an_error() -> None:
    sharing = Sharing()
    for _ in range(2):
        for way in (sharing.used, sharing.alone):
            try:
                with way():
                    raise KeyError
            except KeyError:
                pass
