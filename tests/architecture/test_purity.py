"""What may be loaded where: proven in a fresh interpreter, because lint reads only source."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("engine.protocol.events.run", ["torch", "starlette", "httpx", "apsw"]),
        ("engine.client", ["torch", "starlette", "apsw"]),
        ("engine.cli.parser", ["torch", "starlette", "pydantic"]),
        ("engine.server.app", ["torch", "transformers", "litellm", "PySide6"]),
        ("studio.app", ["torch", "transformers", "litellm", "starlette", "apsw"]),
    ],
)
def test_importing_loads_nothing_heavy(module: str, forbidden: list[str]) -> None:
    code = f"import sys, {module}; print([m for m in {forbidden} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout.strip() == "[]"


def test_host_runs_on_the_standard_library_alone() -> None:
    """-I -S: no site-packages at all; its own folder is on the path, as of every script."""
    host = ROOT / "engine" / "rollout" / "agents" / "host.py"
    code = (
        f"import runpy, sys; sys.path.insert(0, {str(host.parent)!r}); "
        f"runpy.run_path({str(host)!r}, run_name='host')"
    )
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True, cwd=ROOT)


def test_bootstrap_runs_on_the_standard_library_alone() -> None:
    """-S: no site-packages; before .venv there is nothing else."""
    command = [sys.executable, "-S", str(ROOT / "packaging" / "bootstrap.py"), "environment", "-h"]
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
