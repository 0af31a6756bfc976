"""The log of a stream, the cursors on it, and the registry of streams. Pure: no sockets, no files, no clock."""
