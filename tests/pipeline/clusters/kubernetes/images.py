"""Images for a node that can fetch none: archives as `docker save` writes them, with one layer."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def write_image(
    archive: Path,
    name: str,
    *,
    files: Mapping[str, bytes],
    directories: Sequence[str],
    entrypoint: Sequence[str],
    environ: Mapping[str, str],
) -> Path:
    """An image that holds these files by their paths in it, all of which may be run, and empty directories."""
    layer = _layer(files, directories)
    config = json.dumps(
        {
            "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {"Entrypoint": list(entrypoint), "Env": [f"{key}={value}" for key, value in environ.items()]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        }
    ).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = json.dumps([{"Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"]}]).encode()
    with tarfile.open(archive, "w") as image:
        for path, data in {config_name: config, "layer.tar": layer, "manifest.json": manifest}.items():
            _add(image, path, data, 0o644)
    return archive


def _layer(files: Mapping[str, bytes], directories: Sequence[str]) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as layer:
        for path in directories:
            entry = tarfile.TarInfo(path.strip("/"))
            entry.type = tarfile.DIRTYPE
            entry.mode = 0o1777 if path == "/tmp" else 0o755
            layer.addfile(entry)
        for path, data in files.items():
            _add(layer, path.strip("/"), data, 0o755)
    return held.getvalue()


def _add(archive: tarfile.TarFile, path: str, data: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(path)
    entry.size, entry.mode = len(data), mode
    archive.addfile(entry, io.BytesIO(data))
