"""The driver: sockets, the fan-out flush, deadlines. Knows bytes and logs, not what a session is for."""
