"""For all tests: a machine that is busy with others is no reason to fail."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# Who starts tests in the background may have Ctrl-C ignored, which every process started here would inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
