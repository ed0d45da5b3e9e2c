"""Download process: `python -m engine.models.serve LINE LIFE`.

It downloads one model, reports its progress, and exits. To pause a download, kill the process.
"""

import json
import os
import socket
import sys
from typing import Any

os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

from engine.models.download import pull_model
from engine.models.hub_download import Progress
from engine.protocol.problems import AtelierError
from engine.runtime.life_pipe import exit_with_engine


def main() -> None:
    """Read one request with the name of a model from the inherited socket, download the model, send
    progress and the folder or a problem, and exit."""
    line = socket.socket(fileno=int(sys.argv[1]))
    exit_with_engine(int(sys.argv[2]))
    with line.makefile("rb") as lines:
        request = json.loads(lines.readline())
        number = request["id"]

        def send(kind: str, value: dict[str, Any]) -> None:
            line.sendall(json.dumps({"id": number, kind: value}).encode() + b"\n")

        def tell(now: Progress) -> None:
            send("part", vars(now))

        try:
            name, token, weights = (request[key] for key in ("name", "token", "weights"))
            folder = pull_model(name, print, tell, token, weights)
            send("ok", {"path": str(folder)})
        except AtelierError as error:
            send("error", error.problem.model_dump())
        lines.read()  # the engine closes the connection when it has read the answer


if __name__ == "__main__":
    main()
