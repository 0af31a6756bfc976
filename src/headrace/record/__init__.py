"""Recordings: a cursor on a stream's log, and the FLV files it is turned into. Knows nothing of sockets."""
