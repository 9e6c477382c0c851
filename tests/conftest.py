"""What all tests need of the process that they run in."""

import os
import signal

from hypothesis import HealthCheck, settings

# A test run that was started in the background ignores Ctrl-C, and so would the programs that tests stop with it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Tables are as wide as they are for a pipe, whatever terminal the tests were started from.
os.environ.pop("COLUMNS", None)
os.environ.setdefault("OMP_NUM_THREADS", "1")

# How long examples take to draw says how busy the machine is, and nothing about what is tested.
settings.register_profile("burnish", suppress_health_check=[HealthCheck.too_slow], deadline=None)
settings.load_profile("burnish")
