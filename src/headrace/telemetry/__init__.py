"""What the server knows of itself: counters now, the event log later."""
