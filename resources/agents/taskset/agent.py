"""Agent of a task set of the library `verifiers` (its API since 0.4, `verifiers.v1`).

The library runs the episode against the model's endpoint, with its tools and stop conditions, and
scores it. environment.json names the task set, its arguments, and weights of its rewards.

`python agent.py FILE LIMIT` writes the tasks and the reward functions as JSON.
"""

import copy
import itertools
import json
import os
import sys
import uuid
from pathlib import Path

import verifiers.v1 as vf
from verifiers.v1.configs.agent import agent_config_fields
from verifiers.v1.utils.loaders import default_harness_id, env_config_type, load_environment

FOLDER = Path(__file__).resolve().parent
SETTINGS = json.loads((FOLDER / "environment.json").read_text(encoding="utf-8"))
CHAT = {"id": "chat_harness"}
"""Harness of tasks that are conversations: a loop in this process, see chat_harness.py."""


def load():
    """The environment of the task set. `environment` among the arguments holds settings of the
    environment itself; without them, its agent is a conversation, and what it runs is run on this
    machine."""
    folders = [str(FOLDER), str(FOLDER / "environment")]
    sys.path[:0] = folders
    os.environ["PYTHONPATH"] = os.pathsep.join(folders)  # of servers that the library starts
    arguments = dict(SETTINGS["arguments"])
    values = arguments.pop("environment", {})
    kind = env_config_type(SETTINGS["module"], values.get("id", ""))
    roles = {
        name: field.default
        for name, field in kind.model_fields.items()
        if isinstance(field.default, vf.AgentConfig)
    }
    if len(roles) != 1:
        raise ValueError(f"the environment has {len(roles)} agents ({', '.join(roles)}), not one")
    ((role, default),) = roles.items()
    given = dict(values.get(role) or {})
    given.setdefault("runtime", {"type": "subprocess"})
    if default.harness is None and default_harness_id(SETTINGS["module"]) == "bash":
        given.setdefault("harness", CHAT)
    taskset = {**arguments, "id": SETTINGS["module"]}
    return load_environment(kind.model_validate({**values, "taskset": taskset, role: given}))


ENVIRONMENT = load()
TASK = type(ENVIRONMENT.taskset).task_type()
WEIGHTS = SETTINGS.get("weights", {})


def task_of(row):
    return TASK(TASK.data_type().model_validate(row), ENVIRONMENT.config.taskset.task)


async def rollout(scenario, model):
    environment = copy.copy(ENVIRONMENT)  # each rollout has servers of its own
    variable = f"MODEL_{uuid.uuid4().hex}"
    os.environ[variable] = model.api_key  # the library takes a key from nowhere else
    try:
        client = vf.EvalClientConfig(base_url=model.base_url, api_key_var=variable)
        async with environment.serving():
            context = vf.ModelContext(model=model.name, client=client)
            episode = await environment.run_episode(task_of(scenario["row"]), context)
    finally:
        del os.environ[variable]
    return result(episode)


def result(episode):
    """Rewards and metrics of an episode. Raises RuntimeError if it failed, or lacks a reward."""
    errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
    if not episode.ok:
        first = errors[0] if errors else None
        raise RuntimeError(
            f"the rollout failed: {first.type}: {first.message}" if first else "it failed"
        )
    (trace,) = episode.traces
    if not trace.num_turns:
        raise RuntimeError("the model has answered nothing")
    lacking = [name for name, reward in trace.rewards.items() if reward is None]
    if lacking:
        raise RuntimeError(f"the reward {lacking[0]} was not computed")
    return {
        "rewards": {k: v.score if k in WEIGHTS else v.value for k, v in trace.rewards.items()},
        "metrics": {k: v for k, v in trace.metrics.items() if v is not None},
    }


def describe(limit):
    """The first `limit` tasks, and the weights of rewards that are known before a rollout."""
    if TASK.NEEDS_CONTAINER and any(
        spec.runtime.type == "subprocess"
        for spec in agent_config_fields(ENVIRONMENT.config).values()
    ):
        raise ValueError("its tasks need a container, and its agent runs as a process")
    tasks = list(itertools.islice(ENVIRONMENT.taskset, limit + 1))
    rows = [task.data.model_dump(mode="json") for task in tasks[:limit]]
    for task, row in zip(tasks, rows):
        if task_of(row).hash != task.hash:
            raise ValueError("its tasks hold data that cannot be stored")
    weights = {}
    for task in tasks[:1]:
        for hook in task.hooks("reward"):
            weights[hook.__name__] = getattr(hook, "_vf_weight", 1.0)
        for judge in task.plugged_judges():
            weights[judge.reward_name] = judge.config.weight
    bounded = ENVIRONMENT.taskset.bounded
    total = sum(1 for _ in ENVIRONMENT.taskset) if bounded and len(tasks) > limit else len(tasks)
    return {
        "train": rows,
        "validation": None,
        "total": total if bounded else None,
        "weights": {k: v for k, v in weights.items() if v != 1},
    }


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(describe(int(sys.argv[2]))), encoding="utf-8")
