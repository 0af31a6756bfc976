"""Servers to compare with, where they are installed: nginx-rtmp, node-media-server (npm), MediaMTX."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.processes import Measured, NginxProcess, free_port, wait_until_it_listens

# The folder with the node_modules that node-media-server was installed into; without it npm's global one is looked at.
_NODE_FOLDER = "NODE_MEDIA_SERVER"
_NODE_PROGRAM = """
const [folder, port, data] = process.argv.slice(2);
const NodeMediaServer = require(folder + "/node-media-server");
new NodeMediaServer({
  bind: "127.0.0.1", rtmp: { port: Number(port) }, auth: { play: false, publish: false, secret: "" },
  store: { path: data }, notify: { url: "" },
}, data + "/config.json").run();
"""
_MEDIAMTX_CONFIG = """
logLevel: error
rtsp: no
hls: no
webrtc: no
srt: no
rtmp: yes
rtmpAddress: 127.0.0.1:{port}
paths:
  all_others:
"""


class NodeMediaServerProcess(Measured):
    """node-media-server, RTMP only, on a free loopback port."""

    def __init__(self, modules: Path, cores: set[int] | None = None) -> None:
        self.port = free_port()
        self._folder = tempfile.TemporaryDirectory()
        program = Path(self._folder.name) / "serve.js"
        program.write_text(_NODE_PROGRAM)
        command = ["node", str(program), str(modules), str(self.port), self._folder.name]
        self.process = subprocess.Popen(command, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until_it_listens(self, "node-media-server")
        self.pin(cores)

    @staticmethod
    def find() -> Path | None:
        """Its node_modules."""
        folders = [Path(os.environ[_NODE_FOLDER]) / "node_modules"] if _NODE_FOLDER in os.environ else []
        if not folders and shutil.which("npm"):
            said = subprocess.run(["npm", "root", "--global"], capture_output=True, text=True)
            folders = [Path(said.stdout.strip())]
        return next((folder for folder in folders if (folder / "node-media-server").is_dir()), None)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(10)
        self._folder.cleanup()


class MediaMtxProcess(Measured):
    """MediaMTX, RTMP only, on a free loopback port."""

    def __init__(self, cores: set[int] | None = None) -> None:
        self.port = free_port()
        self._folder = tempfile.TemporaryDirectory()
        config = Path(self._folder.name) / "mediamtx.yml"
        config.write_text(_MEDIAMTX_CONFIG.format(port=self.port))
        self.process = subprocess.Popen(["mediamtx", str(config)], text=True, stdout=subprocess.DEVNULL)
        wait_until_it_listens(self, "MediaMTX")
        self.pin(cores)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(10)
        self._folder.cleanup()


def installed_peers(cores: set[int]) -> dict[str, Callable[[], Measured]]:
    """By name; nginx first, since the others are compared with it."""
    peers: dict[str, Callable[[], Measured]] = {}
    if NginxProcess.is_installed():
        peers["nginx"] = partial(NginxProcess, cores=cores)
    if shutil.which("node") and (modules := NodeMediaServerProcess.find()) is not None:
        peers["node-media-server"] = partial(NodeMediaServerProcess, modules, cores=cores)
    if shutil.which("mediamtx"):
        peers["MediaMTX"] = partial(MediaMtxProcess, cores=cores)
    return peers
