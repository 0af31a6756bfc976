"""Several processes behind one port: the parent that starts them, and how each gets what another has."""
