"""Agent of a task of the library `inspect_ai`.

One evaluation of the library runs in this process, and each rollout is a sample of it: the task's
own solver runs against the model's endpoint, and its own scorers score. environment.json names the
task, its arguments, and the models of its roles.

`python agent.py FILE LIMIT` writes the samples of the data set as JSON.
"""

import asyncio
import contextlib
import contextvars
import importlib
import importlib.metadata
import json
import math
import os
import sys
import tempfile
from pathlib import Path

for variable, value in (
    ("INSPECT_DISPLAY", "none"),
    ("INSPECT_EVAL_MODEL", "atelier/policy"),  # tasks that ask for the model before a rollout
):
    os.environ[variable] = value
os.environ.pop("INSPECT_TRACE_FILE", None)  # the library deletes the file that it names, at exit
if not os.access(os.path.expanduser("~"), os.W_OK):  # in a sandbox
    os.environ["XDG_DATA_HOME"] = tempfile.mkdtemp(prefix="inspect-")

from inspect_ai import SampleSource, enqueue_sample, eval_async, task_with  # noqa: E402
from inspect_ai._util.registry import registry_params  # noqa: E402
from inspect_ai.dataset import Sample  # noqa: E402
from inspect_ai.model import GenerateConfig, ModelAPI, get_model, modelapi  # noqa: E402
from inspect_ai.scorer import CORRECT, INCORRECT, NOANSWER, PARTIAL  # noqa: E402
from inspect_ai.solver import solver  # noqa: E402
from inspect_ai.util import display_type, registry_info  # noqa: E402

FOLDER = Path(__file__).resolve().parent
COPY = FOLDER / "environment"
SETTINGS = json.loads((FOLDER / "environment.json").read_text(encoding="utf-8"))
ARGUMENTS = dict(SETTINGS["arguments"])
ROLES = ARGUMENTS.pop("model_roles", {})
MOST_SAMPLES = 1000
"""Rollouts after which another evaluation begins once none runs: the library keeps all scores."""
AT_ONCE = 1024
GRADED = ("model_graded_qa", "model_graded_fact")
VALUES = {CORRECT: 1.0, PARTIAL: 0.5, INCORRECT: 0.0, NOANSWER: 0.0}
WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
MISSING = "missing"
NO_GRADER = (
    "a scorer calls the model that is trained; name another model as the grader in the arguments: "
    '{"model_roles": {"grader": "openai/NAME"}}'
)
current = contextvars.ContextVar("current")
"""Rollout whose solver runs."""


class Rollout:
    """A running rollout: its model, and its sample once that has ended."""

    def __init__(self, model):
        self.model = model
        self.sample = asyncio.get_running_loop().create_future()


class Rollouts(SampleSource):
    """Rollouts of this process, as samples of one evaluation at a time."""

    def __init__(self):
        self.running = {}
        """(Sample id, epoch) → Rollout; the number of the rollout is its epoch."""
        self.lock = asyncio.Lock()
        self.added = asyncio.Event()
        self.evaluation = None
        self.context = None
        """Context in which samples can be added; None if no evaluation takes any."""
        self.count = 0

    async def run(self, sample, model):
        """Run a sample by the task's solver and scorers, and return it with its scores."""
        async with self.lock:
            if self.context is None:
                await self.begin()
            self.count += 1
            key = (sample.id, self.count)
            self.running[key] = rollout = Rollout(model)
            self.context.run(enqueue_sample, sample, epoch=self.count)
            self.added.set()
        try:
            await asyncio.wait({rollout.sample, self.evaluation}, return_when="FIRST_COMPLETED")
            if not rollout.sample.done():
                self.evaluation.result()
                raise RuntimeError("the evaluation of the library ended")
            return rollout.sample.result()
        finally:
            rollout.sample.cancel()
            del self.running[key]

    async def begin(self):
        """Begin an evaluation after the last one has ended."""
        if self.evaluation is not None:
            await asyncio.wait({self.evaluation})
        self.count = 0
        self.ready = asyncio.get_running_loop().create_future()
        # a context of its own: what one rollout prints is not printed by all
        evaluation = contextvars.Context().run(asyncio.create_task, evaluate())
        evaluation.add_done_callback(self.ended)
        self.evaluation = evaluation
        await asyncio.wait({self.ready, evaluation}, return_when="FIRST_COMPLETED")
        if self.context is None:
            evaluation.result()
            raise RuntimeError("the evaluation of the library did not begin")

    def ended(self, _):
        self.context = None

    async def next_samples(self):
        """Wait for samples; the library calls this when none runs. None ends the evaluation."""
        if self.count >= MOST_SAMPLES:
            self.context = None
            return None
        if self.context is None:
            self.context = contextvars.copy_context()
            self.ready.set_result(None)
        await self.added.wait()
        self.added.clear()
        return []

    async def sample_complete(self, sample):
        rollout = self.running.get((sample.id, sample.epoch))
        if rollout is not None and not rollout.sample.done():
            rollout.sample.set_result(sample)


ROLLOUTS = Rollouts()


@solver
def enter():
    """Setup of every sample: what follows belongs to its rollout."""

    async def solve(state, generate):
        rollout = ROLLOUTS.running.get((state.sample_id, state.epoch))
        if rollout is None:
            raise RuntimeError("the rollout was cancelled")
        current.set(rollout)
        return state

    return solve


@modelapi(name="atelier")
class Policy(ModelAPI):
    """Model of the rollout whose solver calls it; scorers run outside of the solver's context."""

    async def generate(self, input, tools, tool_choice, config):
        rollout = current.get(None)
        if rollout is None or self.model_name == MISSING:
            raise RuntimeError(NO_GRADER)
        if rollout.sample.done():
            raise RuntimeError("the rollout was cancelled")
        # the training decides about the other settings
        sent = GenerateConfig(max_tokens=config.max_tokens, stop_seqs=config.stop_seqs)
        return await rollout.model.api.generate(input, tools, tool_choice, sent)


def load():
    """The task. Raises ValueError if it does not exist, or needs a sandbox other than `local`."""
    sys.path[:0] = [str(COPY)] if COPY.is_dir() else []
    with in_folder(COPY if COPY.is_dir() else FOLDER):
        task = task_function()(**ARGUMENTS)
    samples = task.dataset if task.sample_source is None else ()
    for sandbox in {one.sandbox.type for one in (task, *samples) if one.sandbox is not None}:
        if sandbox != "local":
            raise ValueError(f"the task needs a sandbox of the type {sandbox}, not local")
    return task


def task_function():
    module = SETTINGS["module"]
    if SETTINGS["registered"]:  # a package names the module with its tasks
        found = [*importlib.metadata.entry_points(group="inspect_ai", name=module)]
        if not found:
            raise ValueError(f"the package {module} has no tasks of inspect_ai")
        module = found[0].module
    function = getattr(importlib.import_module(module), SETTINGS["task"], None)
    if not callable(function):
        raise ValueError(f"{module} has no task {SETTINGS['task']}")
    return function


@contextlib.contextmanager
def in_folder(folder):
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


POLICY = get_model("atelier/policy", config=GenerateConfig(max_connections=AT_ONCE))
TASK = load()
EXAMPLES = TASK.dataset
SETUP = TASK.setup if isinstance(TASK.setup, (list, tuple)) else [TASK.setup]
TASK = task_with(
    TASK, dataset=ROLLOUTS, setup=[enter(), *filter(None, SETUP)], epochs=1, model=POLICY
)


def models(roles):
    """Models of roles: each is a name, or an object with the arguments of get_model(). Without a
    grader, one that fails takes its place; the library would take the policy."""
    found = {} if "grader" in (TASK.model_roles or {}) else {"grader": f"atelier/{MISSING}"}
    return found | {
        role: get_model(**value) if isinstance(value, dict) else value
        for role, value in roles.items()
    }


async def evaluate():
    display_type()  # read from the variable, or the library prints its progress
    await eval_async(
        TASK,
        model=POLICY,
        model_roles=models(ROLES),
        log_dir="memory://inspect",
        log_samples=False,
        log_realtime=False,
        score_display=False,
        ctl_server=False,
        fail_on_error=False,
        max_samples=AT_ONCE,
        max_sandboxes=AT_ONCE,
    )


def model_at(name, base_url, api_key):
    return get_model(
        f"openai-api/atelier/{name}",
        base_url=base_url,
        api_key=api_key,
        memoize=False,
        strict_tools=False,
        max_retries=0,
    )


model_at("none", "http://127.0.0.1:9", "none").api.model_family()
# loads the client and the library's list of models once, also for rollouts that are forked


async def rollout(scenario, model):
    row = dict(scenario["row"])
    sample = Sample.model_validate({"input": row.pop("prompt"), **row})
    async with model_at(model.name, model.base_url, model.api_key) as endpoint:
        done = await ROLLOUTS.run(sample, endpoint)
    if done.error is not None:
        raise RuntimeError(f"the sample failed: {done.error.message}")
    if not done.scores:
        raise RuntimeError("the task has no scorer")
    for name, score in done.scores.items():
        if score.explanation:
            print(f"{name}: {score.explanation}")
    metrics = {f"limit/{done.limit.type}": 1.0} if done.limit else {}
    return {"rewards": parts(done.scores), "metrics": metrics}


def parts(scores):
    """Reward parts of scores by name; a value with several entries becomes several parts. Raises
    RuntimeError for a score without a number."""
    found = {}
    for name, score in scores.items():
        values = score.value
        if isinstance(values, (list, tuple)):
            values = dict(enumerate(values))
        if not isinstance(values, dict):
            found[name] = number(values, name, score)
            continue
        for key, one in values.items():
            part = f"{name}/{key}"
            found[part] = number(one, part, score)
    return found


def number(value, name, score):
    """Value of a score as a number, as the library converts it; what it would take for 0 fails."""
    try:
        if isinstance(value, str):
            value = VALUES.get(value, WORDS.get(value.lower(), value))
        value = float(value)
    except (TypeError, ValueError):
        raise RuntimeError(f"the scorer {name} gave no number but {value!r}") from None
    if not math.isfinite(value):
        why = score.reason or score.explanation or "no reason"
        raise RuntimeError(f"the scorer {name} gave no score: {why}")
    return value


def check_grader():
    """Raise ValueError if a scorer of the library would ask the trained model for grades."""
    roles = {**(TASK.model_roles or {}), **ROLES}
    for scorer in TASK.scorer or ():
        if registry_info(scorer).name.split("/")[-1] not in GRADED:
            continue
        values = registry_params(scorer)
        if values.get("model") is None and values.get("model_role", "grader") not in roles:
            raise ValueError(NO_GRADER)


def describe(limit):
    """Rows of the data set, at most `limit`. Raises ValueError for data that cannot be stored."""
    check_grader()
    rows = []
    for place, sample in enumerate(EXAMPLES[:limit], 1):
        sample.id = place if sample.id is None else sample.id
        row = sample.model_dump(mode="json", exclude_none=True)
        if Sample.model_validate(row) != sample:
            raise ValueError(f"the sample {sample.id} holds data that cannot be stored")
        rows.append({"prompt": row.pop("input"), **row})
    return {"train": rows, "validation": None, "total": len(EXAMPLES), "weights": {}}


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(describe(int(sys.argv[2]))), encoding="utf-8")
