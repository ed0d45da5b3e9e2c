"""Screenshots of Setup with an agent that has requirements.

`python -m tests.studio.screenshots.packages FOLDER`
"""

from pathlib import Path

from PySide6.QtWidgets import QApplication

from engine.protocol.problems import Problem
from engine.protocol.records.machine.environments import EnvironmentTicked
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.environments import AGENT, at_home
from tests.studio.pages.tools.test_packages import FILE, setup_of
from tests.studio.screenshots.pages import run_command, settle, studio_on, take

TICK = EnvironmentTicked(
    stage="downloading", words="langgraph 1.0.3", done=11, total=28, share=0.25
)
STATES = {
    "absent": {"state": "absent"},
    "installing": {"action": "install", "tick": TICK},
    "failed": {
        "action": None,
        "state": "partial",
        "arrived": 11,
        "problem": Problem(
            code="environment.pip_failed",
            message="The packages of agent could not be installed: No matching distribution found "
            "for lang-graf.",
            hint="What has arrived is kept: try again.",
        ),
    },
    "ready": {"problem": None, "bytes": 84_000_000, **at_home("agent")},
}


async def shoot(app: QApplication, folder: Path) -> None:
    workspace = folder / "workspace"
    workspace.mkdir(parents=True, exist_ok=True)
    engine = FakeEngine(workspace).start()
    engine.environments.steps = 10_000
    try:
        async with studio_on(engine, app, folder) as studio:
            page = await setup_of(studio, engine, FILE)
            for name, values in STATES.items():
                engine.environments.change(AGENT, **values)
                page._tools.packages.look()
                await settle(1.0)
                await take(studio, folder, f"packages-{name}")
    finally:
        engine.stop()


if __name__ == "__main__":
    run_command(shoot)
