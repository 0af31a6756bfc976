"""The HTTP side's view of all workers: what each last told, put together, and changes passed on to each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from headrace.edge.service import NO_PULLS
from headrace.errors import HeadraceError
from headrace.relay.config import DestinationConfig, change_destination, check_unique, read_destination
from headrace.relay.service import Destination, health_of
from headrace.telemetry.metrics import ServerMetrics
from headrace.web.backend import NotFoundError
from headrace.workers.merge import (
    add_counters,
    destination_totals,
    merge_destination,
    merge_streams,
    without_gauges,
)


class Crew(Protocol):
    """The workers, as far as the view has to know them."""

    async def snapshots(self) -> Mapping[int, Mapping[str, Any]]:
        """What each worker shows now, by its number; one that does not answer in time is left out."""

    def change_destinations(self, items: list[dict[str, Any]]) -> None:
        """Have every worker make it so."""

    def drop_publisher(self, stream_key: str) -> bool: ...

    @property
    def connections_refused(self) -> int:
        """Those that no worker took."""

    def describe(self) -> list[dict[str, Any]]:
        """Every worker: number, process, restarts."""


def as_items(configs: Sequence[DestinationConfig]) -> list[dict[str, Any]]:
    """Destinations as a worker reads them."""
    return [{**config.source, "name": config.name} for config in configs]


class WorkersView:
    """The `Backend` of the HTTP side where there are several workers."""

    def __init__(self, crew: Crew, configs: Sequence[DestinationConfig]) -> None:
        self._crew = crew
        self._configs = {config.name: config for config in configs}
        self._shown: dict[int, Mapping[str, Any]] = {}  # the newest of every worker that lives
        self._past: dict[str, Any] = {}  # counters of workers that are gone
        self._past_destinations: dict[str, dict[str, Any]] = {}
        self._refreshing: asyncio.Task[None] | None = None

    # What the workers tell ------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Ask all workers; pages that are asked for meanwhile share the answers."""
        if self._refreshing is None:
            self._refreshing = asyncio.get_running_loop().create_task(self._ask())
        await asyncio.wait((self._refreshing,))

    async def _ask(self) -> None:
        try:
            for worker, snapshot in (await self._crew.snapshots()).items():
                self.told(worker, snapshot)
        finally:
            self._refreshing = None

    def told(self, worker: int, snapshot: Mapping[str, Any]) -> None:
        self._shown[worker] = snapshot

    def worker_gone(self, worker: int) -> None:
        """Its counters stay: a total that shrinks would look like a restart of all."""
        snapshot = self._shown.pop(worker, None)
        if snapshot is not None:
            self._past = add_counters((self._past, without_gauges(snapshot["counters"])))
            totals = destination_totals(snapshot["destinations"])
            self._past_destinations = add_counters((self._past_destinations, totals))

    # The pages ------------------------------------------------------------------------------------------------

    def health(self) -> dict[str, Any]:
        return health_of(self.destinations())

    def destinations(self) -> dict[str, dict[str, Any]]:
        return {name: self._destination(config) for name, config in self._configs.items()}

    def streams(self) -> list[dict[str, Any]]:
        return merge_streams({worker: snapshot["streams"] for worker, snapshot in sorted(self._shown.items())})

    def counters(self) -> dict[str, Any]:
        merged = add_counters((_nothing(), self._past, *(snapshot["counters"] for snapshot in self._shown.values())))
        workers = [
            {
                **one,
                "cpu_s": self._shown.get(one["worker"], {}).get("cpu_s", 0.0),
                "memory_bytes": self._shown.get(one["worker"], {}).get("memory_bytes", 0),
            }
            for one in self._crew.describe()
        ]
        refused = merged["connections_refused"] + self._crew.connections_refused
        return {**merged, "connections_refused": refused, "workers": workers}

    def _destination(self, config: DestinationConfig) -> dict[str, Any]:
        idle = Destination(config, _no_fanout, 0).snapshot()
        told = [
            snapshot["destinations"][config.name]
            for snapshot in self._shown.values()
            if config.name in snapshot["destinations"]
        ]
        merged = merge_destination([*told, idle], self._past_destinations.get(config.name, {}))
        # What was changed this moment is not told yet.
        return {**merged, **{key: idle[key] for key in ("name", "url", "enabled", "match", "metadata")}}

    # Changes --------------------------------------------------------------------------------------------------

    def add_destination(self, body: Any) -> dict[str, Any]:
        config = read_destination(body, None, "destination")
        check_unique(config, self._configs.values(), "destination")
        return self._change(config)

    def change_destination(self, name: str, body: Any) -> dict[str, Any]:
        config = change_destination(self._find(name), body, "destination")
        others = [other for other in self._configs.values() if other.name != name]
        check_unique(config, others, "destination")
        return self._change(config)

    def remove_destination(self, name: str) -> None:
        self._find(name)
        del self._configs[name]
        self._past_destinations.pop(name, None)
        self._pass_on()

    def reload(self, configs: Sequence[DestinationConfig]) -> None:
        self._configs = {config.name: config for config in configs}
        self._pass_on()

    def drop_publisher(self, stream_key: str) -> None:
        is_published = any(one["key"] == stream_key and one["publisher"] is not None for one in self.streams())
        if not is_published or not self._crew.drop_publisher(stream_key):
            raise NotFoundError(f'No stream "{stream_key}" is being published.')

    @property
    def items(self) -> list[dict[str, Any]]:
        """The destinations for a worker that starts now."""
        return as_items(list(self._configs.values()))

    def _change(self, config: DestinationConfig) -> dict[str, Any]:
        self._configs[config.name] = config
        self._pass_on()
        return self._destination(config)

    def _pass_on(self) -> None:
        self._crew.change_destinations(self.items)

    def _find(self, name: str) -> DestinationConfig:
        config = self._configs.get(name)
        if config is None:
            raise NotFoundError(f'There is no destination "{name}".')
        return config


def _nothing() -> dict[str, Any]:
    """The counters of a server of which no worker has told anything yet."""
    return {
        **ServerMetrics().snapshot(),
        "events": {"written": 0, "lost": 0},
        "pulls": NO_PULLS,
        "recordings": {"active": 0, "files": 0, "tags": 0, "size_bytes": 0, "errors": 0, "skipped": {}},
    }


def _no_fanout(stream: object) -> Any:
    raise HeadraceError("the parent feeds nobody")


class Refreshing:
    """An HTTP application whose view is made fresh before every request."""

    def __init__(self, app: Callable[..., Any], view: WorkersView) -> None:
        self._app = app
        self._view = view

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await self._view.refresh()
        await self._app(scope, receive, send)
