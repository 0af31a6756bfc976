"""Which store a place has: a directory, `hdfs://` or `s3a://`."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.layout import VERSION_FILE
from headrace.pipeline.stores.local import LocalStore
from headrace.pipeline.stores.store import Store

_OBJECTS = ("s3", "s3a", "s3n")


def store_at(place: Path | str) -> Store:
    """Raises PipelineError for an address that no lake can have, or that nobody answers at."""
    if isinstance(place, Path) or "://" not in place:
        return LocalStore(Path(place))
    try:
        address = urlsplit(place)
        host = address.hostname
    except ValueError:  # no address at all
        raise PipelineError("LAKE_ADDRESS", path=place.partition("://")[0] + "://…") from None
    shown = f"{address.scheme}://{address.netloc.rpartition('@')[2]}{address.path}"  # before and behind may be keys
    try:
        if address.scheme == "hdfs" and host:
            from headrace.pipeline.stores.hdfs import HdfsStore

            return HdfsStore(shown)
        if address.scheme in _OBJECTS and host:
            from headrace.pipeline.stores.objects import ObjectStore

            return ObjectStore(place)
    except (OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0].replace(place, shown)
        for secret in filter(None, (address.password, address.username)):
            reason = reason.replace(secret, "…")
        raise PipelineError("LAKE_NOT_REACHED", path=shown, who="this job", reason=reason) from None
    raise PipelineError("LAKE_ADDRESS", path=shown)


def existing_store_at(place: Path | str) -> Store:
    """Raises PipelineError if there is no lake."""
    store = store_at(place)
    try:
        store.knock()
        is_there = store.entry(VERSION_FILE) is not None
    except OSError as error:
        reason = str(error).strip().partition("\n")[0]
        raise PipelineError("LAKE_NOT_REACHED", path=store.address, who="this job", reason=reason) from error
    if not is_there:
        raise PipelineError("LAKE_NOT_FOUND", path=store.address, command="`headrace pipeline run` or `batch`")
    return store
