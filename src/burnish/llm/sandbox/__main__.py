"""The spawner: a small resident process that forks one warden for each program to be run.

It is started once, as ``python -I -S <this folder>``. Forking from here rather than from the calling process costs a
few milliseconds whatever the caller has loaded, is safe when the caller has threads, and hands nothing of the caller's
memory, files or environment to programs.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import socket
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING or __package__:
    from burnish.llm.sandbox import warden
else:
    import warden

DESCRIPTORS = 6
RECENT = 1024
"""Requests among which those are that still run."""


def main() -> None:
    """Serve requests from the socket that is standard input, until the caller closes it or ends.

    A request is 8 bytes of length, accompanied by six open files, and then that much JSON.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # wardens need no burial
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.umask(0o022)
    gc.disable()
    gc.freeze()  # wardens are short-lived, and need not copy what they only look through
    folders: deque[str] = deque(maxlen=RECENT)
    with socket.socket(fileno=os.dup(0)) as calls:
        while True:
            length, fds, _, _ = socket.recv_fds(calls, 8, DESCRIPTORS)
            if len(length) < 8:
                break
            request = json.loads(calls.recv(int.from_bytes(length, "little"), socket.MSG_WAITALL))
            folders.append(request["base"])
            if os.fork() == 0:
                try:
                    calls.close()
                    os.close(0)
                    warden.serve(request, fds)
                finally:
                    os._exit(0)
            for fd in fds:
                os.close(fd)
    with suppress(ChildProcessError):
        os.waitpid(-1, 0)  # as ended children are not kept, this waits for all
    for folder in folders:  # still there if the caller was killed
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
