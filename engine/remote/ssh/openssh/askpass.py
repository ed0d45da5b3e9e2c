"""Askpass program of `ssh`: passes the question over a socket and prints the answer.

Standard library only, run by a bare interpreter. Exit code 1 means no answer.
"""

import json
import os
import socket
import sys

SOCKET = "ATELIER_ASKPASS"
"""Environment variable with the path of the socket."""


def main() -> int:
    question = {
        "prompt": " ".join(sys.argv[1:]),
        "hint": os.environ.get("SSH_ASKPASS_PROMPT", ""),
        "process": os.getppid(),
    }
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(os.environ[SOCKET])
        line.sendall(json.dumps(question).encode() + b"\n")
        with line.makefile("rb") as reader:
            answer = json.loads(reader.readline() or b"null")
    if answer is None:
        return 1
    sys.stdout.write(f"{answer}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
