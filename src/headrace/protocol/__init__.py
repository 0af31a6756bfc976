"""The wire without I/O: bytes in, events out. No sockets, clock, tasks or logging in here."""
