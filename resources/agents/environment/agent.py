"""Agent of an environment of the library `verifiers` (its API with `load_environment`).

The library runs the rollout against the model's endpoint, with its tools and stop conditions, and
its rubric scores it. environment.json names the environment and its arguments.

`python agent.py FILE LIMIT` writes the data set and the reward functions as JSON.
"""

import contextvars
import functools
import importlib
import inspect
import json
import sys
from pathlib import Path

from openai import AsyncOpenAI
from tqdm import tqdm
from verifiers.clients import OpenAIChatCompletionsClient

FOLDER = Path(__file__).resolve().parent
SETTINGS = json.loads((FOLDER / "environment.json").read_text(encoding="utf-8"))
SENT = ("max_tokens", "stop")
"""Sampling arguments of the environment that are sent; the training decides about the others."""
failed = contextvars.ContextVar("failed")
"""Names of reward functions that raised in this rollout, with the exception."""


def load():
    """The environment; its reward functions note what they raise, which the library scores as 0."""
    tqdm.monitor_interval = 0  # a thread of progress bars, and a sandbox forks this process
    sys.path.insert(0, str(FOLDER / "environment"))
    module = importlib.import_module(SETTINGS["module"])
    environment = module.load_environment(**SETTINGS["arguments"])
    for rubric in rubrics(environment.rubric):
        rubric.funcs = [noting(function) for function in rubric.funcs]
    return environment


def rubrics(rubric):
    """A rubric, or the rubrics of a group."""
    return (
        [one for part in rubric.rubrics for one in rubrics(part)]
        if hasattr(rubric, "rubrics")
        else [rubric]
    )


def noting(function):
    @functools.wraps(function)
    async def call(*arguments, **named):
        try:
            value = function(*arguments, **named)
            return float(await value if inspect.isawaitable(value) else value)
        except Exception as error:
            failed.get()[function.__name__] = error
            raise

    return call


def weights():
    """Reward function → weight. The library calls those with weight 0 metrics."""
    found = {}
    for rubric in rubrics(ENVIRONMENT.rubric):
        for function, weight in zip(rubric.funcs, rubric.weights):
            if found.setdefault(function.__name__, weight) != weight:
                raise ValueError(
                    f"two reward functions named {function.__name__} have different weights"
                )
            if rubric._is_group_func(function):
                raise ValueError(
                    f"the reward function {function.__name__} scores a whole group at once"
                )
    return found


ENVIRONMENT = load()
WEIGHTS = weights()


async def rollout(scenario, model):
    failed.set({})
    connection = AsyncOpenAI(base_url=model.base_url, api_key=model.api_key, max_retries=0)
    sampling = {k: v for k, v in (ENVIRONMENT.sampling_args or {}).items() if k in SENT}
    async with connection:
        client = OpenAIChatCompletionsClient(connection)
        state = await ENVIRONMENT.rollout(scenario["row"], client, model.name, sampling)
    try:
        if state.get("error"):
            raise RuntimeError(f"the rollout failed: {state['error']!r}") from cause(state["error"])
        if not state["trajectory"]:
            long = "; its prompt is longer than model.max_context" * bool(
                state.get("prompt_too_long")
            )
            raise RuntimeError(f"the model has answered nothing{long}")
        await ENVIRONMENT.rubric.score_rollout(state)
    finally:
        await ENVIRONMENT.rubric.cleanup(state)
    scores = {k: v for k, v in state["metrics"].items() if k not in failed.get()}
    for name, error in failed.get().items():
        if WEIGHTS[name]:
            raise RuntimeError(f"the reward function {name} raised {error!r}") from error
    return {
        "rewards": {k: v for k, v in scores.items() if WEIGHTS.get(k)},
        "metrics": {k: v for k, v in scores.items() if not WEIGHTS.get(k)},
    }


def cause(error):
    return error if isinstance(error, BaseException) else None


def describe(limit):
    """At most `limit` rows of the data set for training and for validation, and the weights."""
    train = ENVIRONMENT.get_dataset()
    own = ENVIRONMENT.eval_dataset_source is not None
    held_out = ENVIRONMENT.get_eval_dataset() if own else None
    return {
        "train": [train[place] for place in range(min(limit, len(train)))],
        "validation": [held_out[place] for place in range(min(limit, len(held_out)))]
        if own
        else None,
        "total": len(train),
        "weights": WEIGHTS,
    }


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(describe(int(sys.argv[2]))), encoding="utf-8")
