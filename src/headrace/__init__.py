"""Headrace: a live-streaming RTMP relay. A stream is a log; everything else is a cursor on it."""

__version__ = "0.1.0"
