"""A lake in an object store that speaks S3: no renames, but one object is replaced in one step.

So a stream's file is one write of one object. A part of several files comes file by file, and what is to come is told
before: whoever opens the lake after a crash finishes it, or takes away what is there of it. A reader may see some files
of a part a moment before the others: fewer rows, never one twice.

    LAKE/_intents/ID.json   a part that is on its way: from where to where its files are copied, and how long they are

Nothing here can take many files away and put others in their place at once, so there is no merging.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit
from uuid import uuid4

import pyarrow as pa
import pyarrow.fs as pafs

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.filesystems import connect
from headrace.pipeline.stores.remote import RemoteStore
from headrace.pipeline.stores.store import CHUNK_BYTES, ROWS_FILE, TEMPORARY, Entry, Note

_INTENTS = "_intents"
# The store itself copies up to 5 GB at once. What is longer goes through this machine.
_MAX_COPY_BYTES = 5_000_000_000


class ObjectStore(RemoteStore):
    """At `s3a://bucket/path`, or `s3://`. Keys and endpoint as in pyarrow's addresses, or by AWS's variables."""

    can_swap = False

    def __init__(self, address: str) -> None:
        place = urlsplit(address)
        self._place = place
        self._options = dict(parse_qsl(place.query))
        # Else even one byte is three requests.
        query = urlencode({"allow_delayed_open": "true", **self._options})
        filesystem, root = connect(f"s3://{place.netloc}{place.path}?{query}")
        super().__init__(filesystem, root, f"s3a://{place.netloc.rpartition('@')[2]}{place.path.rstrip('/')}")

    @property
    def hadoop_conf(self) -> Mapping[str, str]:
        found = {"fs.s3a.endpoint.region": self._filesystem.region}
        endpoint = (
            self._options.get("endpoint_override")
            or os.environ.get("AWS_ENDPOINT_URL_S3")
            or os.environ.get("AWS_ENDPOINT_URL")
        )
        if endpoint:
            scheme = self._options.get("scheme", "https")
            found["fs.s3a.endpoint"] = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
            is_virtual = self._options.get("force_virtual_addressing") == "true"
            found["fs.s3a.path.style.access"] = "false" if is_virtual else "true"
        if self._place.username and self._place.password:
            found["fs.s3a.access.key"] = unquote(self._place.username)
            found["fs.s3a.secret.key"] = unquote(self._place.password)
        return found

    # Reading ------------------------------------------------------------------------------------------------------

    def entries(self, directory: str, *, is_recursive: bool = False) -> list[Entry]:
        path = self._path(directory)
        selector = pafs.FileSelector(path, recursive=is_recursive, allow_not_found=True)
        found = [_entry(info, path) for info in self._filesystem.get_file_info(selector)]
        return [entry for entry in found if not (is_recursive and entry.is_directory)]

    def entry(self, name: str) -> Entry | None:
        (info,) = self._filesystem.get_file_info([self._path(name)])
        if info.type == pafs.FileType.NotFound:
            return None
        return _entry(info, self._path(name).rpartition("/")[0])

    def chunks(self, file: str) -> Iterator[bytes]:
        # Each read is a request of its own, for bytes of whatever object has the name by then; where that is shorter,
        # pyarrow fills up what it lacks with bytes of nobody.
        with self._filesystem.open_input_stream(self._path(file)) as opened:
            seen = opened.metadata()
            try:
                while chunk := opened.read(CHUNK_BYTES):
                    yield chunk
            except OSError:
                self._require_unchanged(file, seen)
                raise
        self._require_unchanged(file, seen)

    def _require_unchanged(self, file: str, seen: Mapping[str, bytes]) -> None:
        with self._filesystem.open_input_stream(self._path(file)) as opened:
            if opened.metadata() != seen:  # its ETag among others
                raise OSError(errno.ESTALE, "replaced while it was read", file)

    # Writing ------------------------------------------------------------------------------------------------------

    def put_note(self, name: str, content: Note) -> None:
        self._put_bytes(name, json.dumps(content).encode())

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._filesystem.delete_file(self._path(name))

    def delete_directory(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._filesystem.delete_dir(self._path(name))

    def make_directory(self, name: str) -> None:
        """There are none: a directory is what names of objects have in common."""

    def put_part(self, rows: pa.Table, directory: str, part: str) -> None:
        self._require_held()
        file = f"{directory}/{part}/{ROWS_FILE}"
        self._put_rows(rows, file)
        self._remember(directory, part, [file])

    def put_file(self, rows: pa.Table, file: str) -> None:
        self._require_held()
        self._put_rows(rows, file)

    def move_part(self, written: str, directory: str, part: str) -> None:
        files = sorted(entry for entry in self.entries(written) if entry.name.endswith(".parquet"))
        told: Note = {
            "part": f"{directory}/{part}",
            "files": [
                {
                    "from": f"{written}/{entry.name}",
                    "to": f"{directory}/{part}/rows-{number:04d}.parquet",
                    "bytes": entry.size_bytes,
                }
                for number, entry in enumerate(files)
            ],
        }
        intent = f"{_INTENTS}/{uuid4().hex}.json"
        self.write_note(intent, told)
        self._bring(told)
        self.remove(intent)
        self._remember(directory, part, [file["to"] for file in told["files"]])

    def move_file(self, written: str, file: str) -> None:
        self._require_held()
        self._copy(written, file)

    def _bring(self, told: Note) -> bool:
        """All files of a part to their place; False if some are not to be had any more."""
        for file in told["files"]:
            source, place = self.entry(file["from"]), self.entry(file["to"])
            if source is not None and source.size_bytes == file["bytes"]:
                self._require_held()
                self._copy(file["from"], file["to"])
            elif place is None or place.size_bytes != file["bytes"]:
                return False
        return True

    def _copy(self, source: str, place: str) -> None:
        entry = self.entry(source)
        if entry is None:
            raise FileNotFoundError(source)
        if entry.size_bytes <= _MAX_COPY_BYTES:
            self._filesystem.copy_file(self._path(source), self._path(place))
            return
        with (
            self._filesystem.open_input_stream(self._path(source)) as old,
            self._filesystem.open_output_stream(self._path(place)) as new,
        ):
            while chunk := old.read(CHUNK_BYTES):
                new.write(chunk)

    def move_unchanged(self, written: str, file: str, seen: Entry) -> bool:
        raise PipelineError("LAKE_NOT_COMPACTED", path=self.address)

    def swap(self, directory: str, gone: Collection[str], fresh: str) -> None:
        raise PipelineError("LAKE_NOT_COMPACTED", path=self.address)

    def _mend(self) -> None:
        for entry in self.entries(_INTENTS):
            told = self.read_note(f"{_INTENTS}/{entry.name}") if entry.name.endswith(".json") else None
            if told is not None:
                if not self._bring(told):
                    self.delete_directory(told["part"])
                self.remove(f"{_INTENTS}/{entry.name}")
        self.delete_directory(TEMPORARY)


def _entry(info: pafs.FileInfo, directory: str) -> Entry:
    changed_ns = info.mtime_ns or 0
    return Entry(
        info.path.removeprefix(directory).lstrip("/"),
        info.type == pafs.FileType.Directory,
        info.size or 0,
        changed_ns / 1e9,
        (changed_ns, info.size or 0),
    )
