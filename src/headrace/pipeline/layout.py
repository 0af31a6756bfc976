"""The names in a lake that its readers need too, also those without PySpark. `jobs/lake.py` says what lies where."""

from __future__ import annotations

LAYOUT_VERSION = 1  # raised when what lies where changes its meaning
LAYERS = ("bronze", "silver", "gold")
VERSION_FILE = "_lake.json"  # the version, and the columns of every table
