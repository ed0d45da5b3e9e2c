"""Button scenes after the engine was killed: error card and Settings."""

import os
import signal

from tests.studio.buttons.stage import Row, Scene, Stage


async def killed(stage: Stage) -> None:
    """Kill the engine, and wait until the window has given up reconnecting."""
    session = stage.session
    if session.connected and session.link.endpoint is not None:
        await stage.until(lambda: not session.tasks.busy("engine"))
        os.kill(session.link.endpoint.pid, signal.SIGKILL)

    def gone() -> bool:
        session.link.pump.nudge()
        return session.feed.link.contact == "gone"

    await stage.until(gone, 30)
    stage.page("home")


async def restarted(stage: Stage) -> None:
    await stage.until(lambda: stage.session.connected, 30)
    stage.page("settings").show_section("engines")


LOST = [
    Scene(
        "killed",
        killed,
        [
            Row("ErrorCard: Copy report", "copied .*engine"),
            Row("_RemedyRow._button", "page settings", "Open Settings"),
            Row("_RemedyRow._button", "hidden ErrorCard", "Start"),
        ],
    ),
    Scene(
        "restarted",
        restarted,
        [Row("Card: Restart the engine of SettingsPage", "POST /engine/shutdown")],
    ),
]
