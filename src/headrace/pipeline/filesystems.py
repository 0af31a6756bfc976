"""The file system behind an address: `s3://`, `gs://`, `hdfs://` and whatever else pyarrow knows.

pyarrow's own client of HDFS needs libhdfs, a JVM in every Python process, and Hadoop's configuration in CLASSPATH.
`hdfs-native` speaks the protocol itself and needs none of that, so it is taken where it is installed.
"""

from __future__ import annotations

import importlib.util
from typing import Any
from urllib.parse import urlsplit

import pyarrow.fs as pafs

from headrace.pipeline.errors import PipelineError

_HADOOP = ("hdfs", "viewfs")
_AS_S3 = ("s3a", "s3n")  # what Hadoop calls it


def connect(uri: str) -> tuple[pafs.FileSystem, str]:
    """The file system, and the address's path in it. Raises PipelineError."""
    scheme, _, rest = uri.partition("://")
    scheme = scheme.lower()
    if scheme in _HADOOP and importlib.util.find_spec("hdfs_native") is not None:
        return _native(uri)
    try:
        filesystem, path = pafs.FileSystem.from_uri(f"s3://{rest}" if scheme in _AS_S3 else uri)
    except OSError as error:
        if scheme not in _HADOOP:
            raise
        # pyarrow lists the ninety places where it has looked.
        found = str(error).partition("\n")[0]
        raise PipelineError("HDFS_CLIENT", found=found) from error
    return filesystem, path


def _native(uri: str) -> tuple[pafs.FileSystem, str]:
    from hdfs_native.fsspec import HdfsFileSystem, ViewfsFileSystem

    place = urlsplit(uri)
    kind: Any = ViewfsFileSystem if place.scheme.lower() == "viewfs" else HdfsFileSystem

    class WithTimes(kind):  # type: ignore[misc]  # the client has no types
        """pyarrow asks for `mtime` in seconds; this client has it under Hadoop's name, in milliseconds."""

        def _convert_file_status(self, file_status: Any) -> dict[str, Any]:
            told: dict[str, Any] = super()._convert_file_status(file_status)
            return {**told, "mtime": told["modification_time"] / 1000}

    # fsspec empties its cache in every forked child, before that becomes another program, and the client then waits for
    # threads that no fork takes along, for ever. Spark's JVM is started by a fork.
    filesystem = WithTimes(host=place.hostname, port=place.port, skip_instance_cache=True)
    return pafs.PyFileSystem(pafs.FSSpecHandler(filesystem)), place.path or "/"
