"""Commands that start SkyRL's server by hand, on one or several nodes."""

import json
import shlex

from engine.integrations.skyrl.server import backend_settings
from engine.models.registry import starter_called
from engine.protocol.requests.clusters import LaunchCommand, LaunchRequest

COORDINATOR_PORT = 7777
VERSION = "0.3.0"
PREPARE = f"""\
curl -LsSf https://astral.sh/uv/install.sh | sh
mkdir -p ~/skyrl && cd ~/skyrl && cat > pyproject.toml <<'END'
[project]
name = "skyrl-server"
version = "0"
requires-python = "==3.12.*"
dependencies = ["skyrl[gpu,jax,tinker]=={VERSION}", "tinker==0.24.1"]
[project.optional-dependencies]
jax = []
tinker = []
END
~/.local/bin/uv sync"""


def launch_commands(request: LaunchRequest) -> list[LaunchCommand]:
    """Commands in order, each with the place where it is executed. Nodes besides the first are
    found by the address FIRST_NODE, which a person replaces."""
    several = request.nodes > 1
    starter = starter_called(request.settings.model)
    model = starter.hub_id if starter else request.settings.model
    backend: dict[str, object] = dict(backend_settings(request.settings))
    if several:
        backend["coordinator_address"] = f"FIRST_NODE:{COORDINATOR_PORT}"
        backend["num_processes"] = request.nodes
    server = [
        "~/.local/bin/uv run --extra tinker --extra jax -m skyrl.tinker.api",
        f"--base-model {shlex.quote(model)} --backend jax",
        f"--host 127.0.0.1 --port {request.port}",
        '--database-url "sqlite:///$HOME/skyrl/tinker.db"',
        '--checkpoints-base "$HOME/skyrl/checkpoints"',
        f"--backend-config {shlex.quote(json.dumps(backend))}",
    ]
    commands = [
        LaunchCommand(title="Every node, once" if several else "Once", command=PREPARE),
        LaunchCommand(
            title="First node" if several else "Server",
            command="cd ~/skyrl && " + " \\\n  ".join(server),
        ),
    ]
    if several:
        worker = (
            "cd ~/skyrl && ~/.local/bin/uv run -m skyrl.backends.jax \\\n"
            f"  --coordinator-address FIRST_NODE:{COORDINATOR_PORT} "
            f"--num-processes {request.nodes} --process-id "
        )
        commands += [
            LaunchCommand(title=f"Node {number + 1}", command=f"{worker}{number}")
            for number in range(1, request.nodes)
        ]
    return commands
