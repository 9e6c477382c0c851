"""The spawner: a small resident process that forks one warden for each program to be run.

It is started once, as ``python -I -S <this folder>``. Forking from here rather than from the calling process costs a
few milliseconds whatever the caller has loaded, is safe when the caller has threads, and hands nothing of the caller's
memory, files or environment to programs.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING or __package__:
    from burnish.llm.sandbox import warden
else:
    import warden

DESCRIPTORS = 6


def main() -> None:
    """Serve requests from the socket that is standard input, until the caller closes it.

    A request is 8 bytes of length, accompanied by six open files, and then that much JSON.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # wardens need no burial
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.umask(0o022)
    gc.disable()
    gc.freeze()  # wardens are short-lived, and need not copy what they only look through
    with socket.socket(fileno=os.dup(0)) as calls:
        while True:
            length, fds, _, _ = socket.recv_fds(calls, 8, DESCRIPTORS)
            if len(length) < 8:
                return
            body = calls.recv(int.from_bytes(length, "little"), socket.MSG_WAITALL)
            if os.fork() == 0:
                try:
                    calls.close()
                    os.close(0)
                    warden.serve(json.loads(body), fds)
                finally:
                    os._exit(0)
            for fd in fds:
                os.close(fd)


if __name__ == "__main__":
    main()
