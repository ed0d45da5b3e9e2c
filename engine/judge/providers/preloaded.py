"""Fork server of judge processes: `PYTHON -m engine.judge.providers.preloaded REQUESTS LIFE`, in
their environment.

Imports litellm once, then runs the worker in forked processes (engine/runtime/preloaded.py). Holds
no API keys: each worker receives them after the fork.
"""

import socket
import sys

from engine.runtime.life_pipe import end_with_parent, hide_from_peers
from engine.runtime.preloaded import freeze, serve_forks


def main() -> None:
    end_with_parent()  # the imports take seconds, in which nothing watches the pipe
    hide_from_peers()  # a program that changed this process could read the keys of its forks
    requests, life = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    import engine.judge.providers.worker  # noqa: F401

    freeze()
    serve_forks(requests, life, "judge")


if __name__ == "__main__":
    main()
