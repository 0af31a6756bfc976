"""Who has what: the parent's book of streams and destinations. Pure; the parent asks and tells."""

from __future__ import annotations

from collections import deque


class Directory:
    """Streams by the worker that has them, and destinations by the workers that want them, in order of asking."""

    def __init__(self) -> None:
        self._owners: dict[str, int] = {}
        self._leases: dict[str, deque[int]] = {}  # the first one has it

    def __len__(self) -> int:
        return len(self._owners)

    def find(self, key: str) -> int | None:
        """The worker that has the stream."""
        return self._owners.get(key)

    def claim(self, key: str, worker: int) -> int:
        """The worker that has the stream from now on: this one, unless another does."""
        return self._owners.setdefault(key, worker)

    def release(self, key: str, worker: int) -> None:
        if self._owners.get(key) == worker:
            del self._owners[key]

    def acquire(self, name: str, worker: int) -> bool:
        """True if the destination is this worker's now; otherwise it is told when it is its turn."""
        queue = self._leases.setdefault(name, deque())
        if worker not in queue:
            queue.append(worker)
        return queue[0] == worker

    def let_go(self, name: str, worker: int) -> int | None:
        """The worker whose turn it is now, if that changed."""
        queue = self._leases.get(name)
        if queue is None or worker not in queue:
            return None
        had_it = queue[0] == worker
        queue.remove(worker)
        if not queue:
            del self._leases[name]
            return None
        return queue[0] if had_it else None

    def drop(self, worker: int) -> list[tuple[str, int]]:
        """The worker is gone with all that it had; which destinations are whose now."""
        self._owners = {key: owner for key, owner in self._owners.items() if owner != worker}
        turns = [(name, self.let_go(name, worker)) for name in list(self._leases)]
        return [(name, following) for name, following in turns if following is not None]
