"""Trial of the sandbox on this machine: one empty rollout. Exit 0 if everything worked.

usage: sandboxed_trial.py OPTIONS RIGHTS LINE MAPS
"""

import json
import os
import socket
import sys

import sandboxed_kernel as kernel
from sandboxed_rollout import Rollout


def main():
    maps = socket.socket(fileno=int(sys.argv[4]))
    keeper = os.fork()
    if keeper:
        os._exit(os.waitstatus_to_exitcode(os.waitpid(keeper, 0)[1]) & 0xFF)
    try:
        kernel.unshare(kernel.ALL_NAMESPACES)
        maps.send(b".")
        mapped = maps.recv(1000).decode(errors="replace")
        if mapped != "ok":
            raise OSError(1, mapped)
        first = os.fork()
        if first:
            os._exit(os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]) & 0xFF)
        Rollout(None, json.loads(sys.argv[1]), {}, None, None, -1).build()
        kernel.drop_privileges()
        kernel.refuse_system_calls()
    except OSError as error:
        sys.stderr.write("sandbox: %s\n" % (error.strerror or error))
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    main()
