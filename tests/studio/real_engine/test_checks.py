"""Test agent and Test judge buttons in Setup over a real engine, agent and judge process."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtWidgets import QApplication

from engine.trust.addresses import confirm_address
from studio.pages.setup.preflight.check_result_sheet import CheckedSheet
from studio.widgets.text.text import Text
from tests.engine.judge.scripted import Script, provider
from tests.engine_http.conftest import CACHE, make_project
from tests.engine_http.test_judge import JUDGE, letters
from tests.studio.conftest import Run, until
from tests.studio.real_engine.test_engine import SOON_S, click
from tests.studio.real_window import page_of, window

BROKEN = "import nothing_of_this_name\n\nasync def rollout(scenario, model):\n    return 1.0\n"
SLOW = """
import asyncio


async def rollout(scenario, model):
    await asyncio.sleep(600)
    return 1.0
"""


def texts(sheet: CheckedSheet) -> str:
    return "\n".join(one.words() for one in sheet.findChildren(Text) if one.isVisible())


@pytest.mark.timeout(290)
def test_agent_and_judge_can_be_tested_before_training(
    run: Run, qapp: QApplication, tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", CACHE)  # the judge's environment is installed only once

    async def job(script: Script) -> None:
        toml = JUDGE.format(url=script.url)
        project = make_project(tmp_path / "workspace" / "lab", tiny_model, toml=toml)
        (project / "rubric.md").write_text("More letters are better.\n")
        confirm_address("openai", script.url)
        good = (project / "agent.py").read_text()
        async with window(qapp, tmp_path / "workspace") as studio:
            session = studio.session
            await session.client.lend_keys({"openai": "sk-x"})
            session.open_project(str(project), "setup")
            await until(lambda: studio.window.page == "setup", SOON_S)
            page: Any = page_of(studio, "setup")
            tests, sheet = page._tests, page.findChild(CheckedSheet)
            agent, judge = tests.agent, tests.judge
            await until(lambda: agent.isVisible() and judge.isVisible(), SOON_S)
            assert (agent.test.words(), judge.test.words()) == ("Test agent", "Test judge")
            assert script.asked == []

            click(judge.test)
            assert judge.test.words() == "Stop"
            await until(lambda: judge.test.words() == "Test again", SOON_S)
            assert "scripted responded in" in judge.words()
            assert "$0.0015" in judge.words()
            assert len(script.asked) == 1
            click(judge.look)
            await until(sheet.isVisible)
            assert "synthetic" in texts(sheet)
            assert "I see" in texts(sheet)  # the judge's reason
            sheet.close_sheet()
            await until(sheet.isHidden)

            click(agent.test)
            await until(lambda: agent.test.words() == "Test again", SOON_S)
            assert "1 model call" in agent.words()
            assert "reward" in agent.words()
            click(agent.look)
            await until(sheet.isVisible)
            assert "Say 0" in texts(sheet)
            sheet.close_sheet()
            await until(sheet.isHidden)

            click(judge.test)  # now with the agent's trajectory
            await until(lambda: judge.test.words() == "Test again", SOON_S)
            click(judge.look)
            await until(sheet.isVisible)
            assert "from the agent" in texts(sheet)
            sheet.close_sheet()
            await until(sheet.isHidden)

            (project / "agent.py").write_text(BROKEN)
            await until(lambda: "changed" in agent.words(), SOON_S)
            click(agent.test)
            await until(lambda: agent.test.words() == "Test again", SOON_S)
            assert "nothing_of_this_name" in agent.words(), agent.accessibleName()
            await asyncio.sleep(2.5)  # the file was changed before the test: nothing is outdated
            assert "nothing_of_this_name" in agent.words()

            (project / "agent.py").write_text(SLOW)
            click(agent.test)
            await until(lambda: "Running the agent on “Say 0”" in agent.words(), SOON_S)
            click(agent.test)  # Stop
            assert "Not tested" in agent.words()

            (project / "agent.py").write_text(SLOW.replace("600", "6"))
            click(agent.test)
            await until(lambda: "Say 0" in agent.words(), SOON_S)
            (project / "agent.py").write_text(good)  # while the other version is being tested
            await until(lambda: not agent.running, SOON_S)
            assert "has changed" in agent.words(), agent.accessibleName()

            script.moods = ["overflow"]
            click(judge.test)
            await until(lambda: judge.test.words() == "Test again", SOON_S)
            assert judge.words().startswith("scripted: ")
            (project / "agent.py").write_text(good)

    with provider(Script(grade=letters)) as script:
        run(job(script))
