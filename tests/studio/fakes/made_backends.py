"""Sample engines and runs on other backends."""

import time
from typing import Any

from engine.protocol.config.project import BackendConfig, TrainConfig
from engine.protocol.events import run as e
from engine.protocol.problems import Problem
from engine.protocol.records.clusters import ClusterProfile
from engine.protocol.records.machine.backends import BackendFacts, Provision
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.projects import UNSLOTH, VLLM
from tests.studio.fakes.simulated_run import Made, Simulation

READY = Provision(state="ready")
NO_VLLM = Provision(state="missing", why="This engine has no vLLM.")
NO_UNSLOTH = Provision(state="missing", why="This engine has no Unsloth.")
PROCESSOR = BackendFacts(cards=0, vllm=VLLM, unsloth=UNSLOTH)
IDLE_CARD = BackendFacts(cards=0, idle_cards=1, vllm=VLLM, unsloth=UNSLOTH)
BARE_CARD = BackendFacts(cards=1, vllm=NO_VLLM, unsloth=NO_UNSLOTH)
GPU_ENGINE = BackendFacts(cards=2, vllm=READY, unsloth=READY)
GONE = Problem(
    code="sampler.died",
    message="The vLLM server has exited: its process ended.",
    hint="See the end of the run's log.",
)
NOT_STARTED = Problem(
    code="sampler.not_started",
    message="vLLM did not start: ValueError: The model's head size 24 is not supported.",
    hint="See the run's log, or set backend.sampler to torch to sample without vLLM.",
)
SETUPS: dict[str, tuple[BackendFacts, dict[str, Any], int]] = {
    "plain": (PROCESSOR, {}, 0),
    "comes": (IDLE_CARD, {"sampler": "vllm", "trainer": "unsloth", "weights": "4bit"}, 0),
    "missing": (BARE_CARD, {"sampler": "vllm", "trainer": "unsloth", "processes": 2}, 1),
    "ignored": (PROCESSOR, {"memory_share": 0.6, "sleep": "all"}, 2),
    "cards": (GPU_ENGINE, {"sampler": "vllm", "trainer": "unsloth", "weights": "8bit"}, 1),
}


CLUSTER = ClusterProfile(
    name="lab-8xh100",
    client="tinker 0.24.1",
    model="Qwen/Qwen3-8B",
    sequences="mean",
    tokens="mean",
    clips=False,
    pinned=False,
    repeats=True,
    alpha=32,
    logprob_gap=5e-6,
)
TWELVE = TrainConfig(steps=12, groups=4, validate_every=0, checkpoint_every=2)


class BackendRun(Simulation):
    """Simulated run whose sampler is a vLLM server."""

    def __init__(
        self,
        name: str,
        dtype: str = "float32",
        sampler: str = "float32",
        begun: float = 1_790_000_000.0,
        train: TrainConfig = TWELVE,
        cluster: ClusterProfile | None = None,
    ) -> None:
        super().__init__(f"01JD5{name:X<21}".upper(), name, name, train, 5, clock=begun)
        config = self.made.spec.config.model_copy(update={"backend": BackendConfig(sampler="vllm")})
        self.made.spec = self.made.spec.model_copy(update={"config": config})
        self._loaded = e.PolicyLoaded(
            parameters=134_515_008,
            trainable=4_884_480,
            dtype=dtype,
            seconds=41.0,
            sampler=f"{cluster.name if cluster else 'vLLM 0.31.0'}, {sampler}",
            cluster=cluster,
        )

    def begin(self) -> None:
        super().begin()
        places = [i for i, x in enumerate(self.made.events) if isinstance(x, e.PolicyLoaded)]
        old = self.made.events[places[0]]
        stamped = {"run_id": old.run_id, "seq": old.seq, "at": old.at}
        self.made.events[places[0]] = self._loaded.model_copy(update=stamped)

    def finish(self, step: int) -> None:
        """Add the metrics that only a server reports."""
        super().finish(step)
        for place in range(len(self.made.events) - 1, -1, -1):
            event = self.made.events[place]
            if isinstance(event, e.StepFinished):
                fine = {name: 4e-5 for name in event.metrics if name.startswith("logprob_gap")}
                more = {"publish_moved": 0.02 + 0.004 * step, "publish_gap": 2e-5}
                rest = fine if self._loaded.dtype == "float32" else {}
                metrics = {**event.metrics, **rest, **more, "time_s/switch": 6.5}
                self.made.events[place] = event.model_copy(update={"metrics": metrics})
                return

    def revive(self, attempt: int) -> None:
        self.made.say(e.WorkerRestarted(worker="sampler", attempt=attempt, problem=GONE), 2.0)


def active_run(
    name: str = "vllm",
    dtype: str = "float32",
    sampler: str = "float32",
    cluster: ClusterProfile | None = None,
) -> Made:
    """Return a run that trains in its sixth step."""
    run = BackendRun(name, dtype, sampler, begun=time.time() - 700, cluster=cluster)
    run.begin()
    for step in range(1, 6):
        run.step(step)
    for _ in run.rollouts(6):
        pass
    run.made.say(e.PhaseChanged(step=6, phase="training"))
    return run.made


def restarted_run() -> Made:
    run = BackendRun("restarted", begun=time.time() - 700)
    run.begin()
    for step in range(1, 6):
        run.step(step)
        if step in (3, 5):
            run.revive(1)
    for place, _ in enumerate(run.rollouts(6)):
        if place > 12:
            break
    return run.made


def failed_run(problem: Problem = NOT_STARTED, steps: int = 0) -> Made:
    run = BackendRun("failed", begun=time.time() - 700)
    if steps:
        run.begin()
    else:
        run.made.say(e.RunStarted(spec=run.made.spec, device="CPU · 2 cores"))
        run.made.say(e.PhaseChanged(step=0, phase="loading"), 12.0)
    for step in range(1, steps + 1):
        run.step(step)
    run.made.say(e.RunFailed(step=steps, problem=problem))
    return run.made


def fill_backends(engine: FakeEngine) -> dict[str, str]:
    """Add a project with such a run for each screenshot name."""
    made = {
        "vllm": active_run(),
        "differs": active_run("differs", dtype="bfloat16"),
        "restarted": restarted_run(),
        "cluster": active_run("cluster", cluster=CLUSTER),
        "failed": failed_run(),
    }
    for name, run in made.items():
        engine.add_project(name)
        engine.add_run(run, name)
    return {name: name for name in made}
