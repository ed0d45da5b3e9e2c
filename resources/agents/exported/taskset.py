"""Scenarios of a project of Atelier as tasks, and its reward: weighted parts, then constraints."""

import json
from pathlib import Path
from typing import Any, Literal

import verifiers.v1 as vf

FOLDER = Path(__file__).resolve().parent
SETTINGS = json.loads((FOLDER / "settings.json").read_text(encoding="utf-8"))
RESULT = "result"
"""Key of the agent's result in `trace.info`: its reward parts and metrics."""


class ProjectConfig(vf.TasksetConfig):
    split: Literal["train", "validation"] = "train"
    """Scenarios for training, or those held out."""


class ScenarioData(vf.TaskData):
    scenario: dict[str, Any]
    """First argument of the agent's `rollout`."""


def blend(parts: dict[str, float], metrics: dict[str, float]) -> tuple[dict[str, float], float]:
    """Weight of each part, and what the constraints add to the weighted sum. Raises ValueError if
    a required or constrained value, or every part, is missing."""
    lacking = [name for name in SETTINGS["required"] if name not in parts]
    if lacking or not parts:
        raise ValueError(
            f"the reward part {lacking[0]} is missing" if lacking else "there is no reward"
        )
    weights = {name: SETTINGS["weights"].get(name, 1.0) for name in parts}
    before = reward = sum(weights[name] * value for name, value in parts.items())
    values = {**metrics, **parts}
    for rule in SETTINGS["constraints"]:
        if rule["part"] not in values:
            raise ValueError(f"the constraint on {rule['part']} cannot be checked")
        value, above, below = values[rule["part"]], rule["above"], rule["below"]
        if (above is not None and value > above) or (below is not None and value < below):
            reward = rule["value"] if rule["effect"] == "veto" else reward - rule["value"]
    return weights, reward - before


class ScenarioTask(vf.Task[ScenarioData]):
    @vf.reward
    async def parts(self, trace: vf.Trace) -> dict[str, float]:
        """Record each reward part under its name, with its weight."""
        result = trace.info[RESULT]
        weights, constraints = blend(result["parts"], result["metrics"])
        for name, weight in weights.items():
            trace.record_reward(name, result["parts"][name], weight)
        if SETTINGS["constraints"]:
            trace.record_reward("constraints", constraints)
        return {}

    @vf.metric
    async def values(self, trace: vf.Trace) -> dict[str, float]:
        """Metrics of the agent, by name."""
        return trace.info[RESULT]["metrics"]


class ProjectTaskset(vf.Taskset[ScenarioTask, ProjectConfig]):
    def load(self):
        file = FOLDER / "scenarios" / f"{self.config.split}.jsonl"
        if not file.is_file():
            raise ValueError(f"the project has no {self.config.split} scenarios")
        for line in file.read_text(encoding="utf-8").splitlines():
            item = json.loads(line)
            data = ScenarioData(
                id=item["id"], name=item["title"], prompt=item["title"], scenario=item["data"]
            )
            yield ScenarioTask(data, self.config.task)
