"""What all tests need of the process that they run in."""

import os
import signal

# A test run that was started in the background ignores Ctrl-C, and so would the programs that tests stop with it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Tables are as wide as they are for a pipe, whatever terminal the tests were started from.
os.environ.pop("COLUMNS", None)
os.environ.setdefault("OMP_NUM_THREADS", "1")
