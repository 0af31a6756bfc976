"""Destinations: each a cursor on a stream's log with a supervisor. Knows nothing of players."""
