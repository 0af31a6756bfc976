"""Streams pulled from other servers: each a player there and a publisher here. Knows nothing of destinations."""
