"""Which store a place has: a directory, `hdfs://` or `s3a://`."""

from __future__ import annotations

from pathlib import Path

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.stores.local import LocalStore
from headrace.pipeline.stores.store import Store

VERSION_FILE = "_lake.json"  # where it lies there is a lake


def store_at(place: Path | str) -> Store:
    """Raises PipelineError for an address that no lake can have. Connects to nothing yet."""
    if isinstance(place, Path) or "://" not in place:
        return LocalStore(Path(place))
    raise PipelineError("LAKE_ADDRESS", path=place)


def existing_store_at(place: Path | str) -> Store:
    """Raises PipelineError if there is no lake."""
    store = store_at(place)
    if store.entry(VERSION_FILE) is None:
        raise PipelineError("LAKE_NOT_FOUND", path=store.address)
    return store
