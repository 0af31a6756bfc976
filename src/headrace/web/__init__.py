"""The HTTP side: status, metrics, control. Knows nothing of RTMP; what it shows comes from a `Backend`."""
