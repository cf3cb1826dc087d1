"""What Ray starts in place of a worker: has `tests.forked` fork one, and lasts as long as it does and the raylet does.

Ray's own worker takes three seconds to import the libraries. The socket lies beside the copy of this file that is run.
"""

import json
import os
import select
import socket
import sys

if os.environ.get("RAY_JOB_ID", "01000000") != "01000000":  # of a later job; the server's forks are of the first
    (own,) = (word for word in sys.argv if word.endswith("default_worker.py"))
    os.execv(sys.executable, [sys.executable, own.replace("default_worker", "setup_worker"), *sys.argv[1:]])
raylet = os.getppid()
with socket.socket(socket.AF_UNIX) as server:
    server.connect(os.path.join(os.path.dirname(os.path.abspath(__file__)), "socket"))
    told = json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]).encode()
    socket.send_fds(server, [len(told).to_bytes(4, "big")], [0, 1, 2])
    server.sendall(told)
    while os.getppid() == raylet and not select.select([server], [], [], 1)[0]:
        pass  # nothing is ever sent: the connection ends with the worker
