"""The sample `hello` without rules: a scripted judge is its only reward, and the win rate rises."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.models.registry import problem_of
from engine.protocol.events.run import RunFinished, ValidationFinished
from engine.storage.samples import create_project
from engine.trust.addresses import confirm_address
from engine.trust.projects import trust_project
from tests.end_to_end.test_hello import STARTER
from tests.engine.judge.scripted import Script, provider
from tests.engine_http.conftest import Engine

pytestmark = pytest.mark.usefixtures("real_cache")
SCORES = {"yes": 0.5, "no": 0.75, "maybe": 1.0}
STEPS = 12
JUDGE = """
[judge]
enabled = true
models = ["openai/scripted"]
base_url = "{url}"
passes = 1
price_prompt = 0
price_completion = 0
"""


def grade(position: int, text: str) -> float:
    """Score of the word that a rollout ends with."""
    words = re.findall(r"[a-z]+", text.rsplit("\n", 1)[-1].lower())
    return SCORES.get(words[-1], 0.0) if len(words) == 1 else 0.0


@pytest.fixture
def script() -> Iterator[Script]:
    with provider(Script(grade=grade)) as script:
        yield script


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_win_rate_of_a_judged_run_rises(
    engine: Engine, workspace: Path, script: Script, seed: int
) -> None:
    assert problem_of(STARTER) is None, "run `atelier models pull` first"
    project = workspace / "hello"
    create_project(project, "hello")
    agent = project / "agent.py"
    code = agent.read_text()
    assert '"reward": WORTH.get(word, 0.0), ' in code
    agent.write_text(code.replace('"reward": WORTH.get(word, 0.0), ', ""))
    with (project / "project.toml").open("a") as toml:
        toml.write(JUDGE.format(url=script.url))
    (project / "rubric.md").write_text("One word: maybe is best, then no, then yes.\n")
    trust_project(project)
    confirm_address("openai", script.url)
    every = {"train.steps": STEPS, "train.validate_every": STEPS // 3, "train.seed": seed}
    events = engine.wait(engine.train(project, **every), timeout_s=600)
    finished = events[-1]
    assert isinstance(finished, RunFinished), finished
    last = [one for one in events if isinstance(one, ValidationFinished)][-1]
    words = [
        f"step {step}: {rate.mean:.0%} ({rate.low:.0%} to {rate.high:.0%})"
        for step, rate in last.win_rates.items()
    ]
    print(f"seed {seed}: {', '.join(words)}")
    assert finished.win_rate == last.win_rates[STEPS]
    assert last.win_rates[STEPS].low > 0.5
    assert last.win_rates[STEPS].mean > last.win_rates[STEPS // 3].mean
