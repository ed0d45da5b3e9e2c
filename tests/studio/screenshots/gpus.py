"""Screenshots of Setup and Run on a machine with GPUs, in both themes and two sizes.

`python -m tests.studio.screenshots.gpus FOLDER`
"""

import math
from pathlib import Path
from typing import Any

from PySide6.QtWidgets import QApplication

from engine.protocol.events import run as e
from tests.engine.hardware.models import write_headers
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.gpus import GB, card
from tests.studio.screenshots.pages import (
    fill_workspace,
    open_project,
    run_command,
    settle,
    studio_on,
    take,
    wait_for,
)


async def shoot(app: QApplication, folder: Path) -> None:
    workspace = folder / "workspace"
    workspace.mkdir(parents=True, exist_ok=True)
    engine = FakeEngine(workspace).start()
    try:
        made = fill_workspace(engine)
        engine.project_store.model = write_headers(folder / "llama-8b")
        async with studio_on(engine, app, folder) as studio:
            state = studio.session.runs.state(made.spec.id)
            await wait_for(lambda: state.seq == len(made.events))
            await open_project(studio, engine, "inbox-scout")
            page: Any = studio.pages["setup"]
            for name, cards, values in SETUPS:
                engine.project_store.cards = cards
                path = str(workspace / "inbox-scout")
                engine.project_store.projects[path] = _with(
                    engine.project_store.projects[path], values
                )
                studio.session.show_project(engine.project_store.projects[path])
                studio.window.show_page("setup")
                page._ask_forecast()
                await settle(1.0)
                undo = {"backend.weights": None} if name == "setup-fits" else {}
                page._preflight.cards.offer_undo("Weights in 4 bits" if undo else "", undo)
                await take(studio, folder, name)
            studio.window.show_page("run")
            await settle(0.5)
            side: Any = studio.pages["run"]._side  # type: ignore[attr-defined]
            for moment in range(90):
                state.progress = _tick(state, moment)
                side._cards.show_run(state)
            await take(studio, folder, "run-card")
            for scheme in ("dark", "light"):
                studio.settings.update(theme=scheme)
                await settle()
                side._cards.grab().save(str(folder / f"card-{scheme}.png"))
    finally:
        engine.stop()


VLLM = {"backend": {"sampler": "vllm"}, "model": {"max_context": 4096}}
SETUPS = (
    ("setup-fits", (card(total=80 * GB, ours=0),), VLLM),
    ("setup-over", (card(total=24 * GB, ours=0, others=3 * GB),), VLLM),
    (
        "setup-two",
        (card(ours=0), card(1, ours=0)),
        {**VLLM, "backend": {"sampler": "vllm", "processes": 2}},
    ),
)


def _with(view: Any, values: dict[str, Any]) -> Any:
    config = view.config.model_dump()
    for section, keys in values.items():
        config[section] |= keys
    return view.model_copy(update={"config": type(view.config).model_validate(config)})


def _tick(state: Any, moment: int) -> e.ProgressTicked:
    wave = 0.5 + 0.5 * math.sin(moment / 7)
    gpu = card(
        ours=int((18 + 16 * wave) * GB), others=int(6.1 * GB), busy_percent=round(40 + 55 * wave)
    )
    return e.ProgressTicked(step=state.step, phase="rolling_out", done=44, total=64, cards=(gpu,))


if __name__ == "__main__":
    run_command(shoot)
