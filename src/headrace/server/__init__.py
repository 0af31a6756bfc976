"""Sessions that publish or play. Knows nothing of destinations and files."""
