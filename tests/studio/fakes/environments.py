"""Environment routes for the fake engine: jobs progress with each request."""

from collections.abc import Callable
from typing import Any

from starlette.requests import Request

from engine.protocol.problems import Problem
from engine.protocol.records.machine.environments import (
    BUILT_IN,
    ActOnEnvironment,
    ChosenEngine,
    EngineChoice,
    EnvironmentList,
    EnvironmentTicked,
    EnvironmentView,
    UseEngine,
)

AGENT = "agent:requirements.txt"
HOME = "/cache/environments/{}-0123456789ab.1"
NO_CARD = "No NVIDIA card is found here: it can be installed, but is of use only with a card."


def view(name: str, title: str, purpose: str, size: int, brought: int, **more: Any) -> Any:
    values = {"state": "absent", "needs": "any machine", "packages": 59, **more}
    return EnvironmentView(
        name=name, title=title, purpose=purpose, bytes=size, download_bytes=brought, **values
    )


def at_home(name: str) -> dict[str, Any]:
    home = HOME.format(name)
    return {"state": "ready", "home": home, "python": f"{home}/bin/python"}


class FakeEnvironments:
    """Environment routes; `living` returns the number of active runs."""

    def __init__(self, living: Callable[[], int]) -> None:
        self._living = living
        gpu = view(
            "engine-gpu", "GPU engine",
            "Engine with torch for CUDA, vLLM for sampling and Unsloth for training.",
            9_400_000_000, 4_100_000_000, engine=True, lacks=NO_CARD, packages=228,
            needs="Linux on x86_64, an NVIDIA GPU and its driver",
        )  # fmt: skip
        self.views = {
            one.name: one
            for one in (
                gpu,
                view("vllm-cpu", "vLLM on the CPU", "Sampling with vLLM, without a GPU.",
                     1_450_000_000, 460_000_000),
                view("judge", "Judge", "Calls API models, such as judges, through litellm.",
                     320_000_000, 75_000_000, **at_home("judge")),
                view("parquet", "Parquet", "Reads trajectories that ART stored as Parquet files.",
                     175_000_000, 55_000_000, packages=1),
            )
        }  # fmt: skip
        self.views[AGENT] = view(AGENT, "Agent packages", "", 500_000_000, 0, packages=28)
        self.choice, self.running = EngineChoice(), ChosenEngine()
        self.asked: list[tuple[str, str]] = []
        self.steps = 4
        """Number of requests until a job is finished."""

    def routes(self) -> list[tuple[Any, ...]]:
        return [
            ("/environments", self._list),
            ("/environments/{name}", self._act, "POST"),
            ("/engine/use", self._use, "POST"),
            ("/project/packages", self._packages, "GET"),
            ("/project/packages", self._act_on_packages, "POST"),
        ]

    def change(self, name: str, **values: Any) -> None:
        self.views[name] = self.views[name].model_copy(update=values)

    def restarted(self) -> None:
        """Answer as the selected engine from now on."""
        self.running = self.choice.current

    async def _list(self, request: Request) -> EnvironmentList:
        for name, one in list(self.views.items()):
            if one.action is not None:
                self._move(name, one)
        return self._now()

    async def _act(self, request: Request) -> Any:
        from tests.studio.fakes.projects import refusal

        name = request.path_params["name"]
        action = ActOnEnvironment.model_validate(await request.json()).action
        self.asked.append((name, action))
        if name not in self.views:
            return refusal(404, "environment.unknown", f"There is no environment {name}.")
        if action == "cancel":
            self.change(name, action=None, tick=None, state="partial", arrived=12)
        else:
            self.change(name, action=action, problem=None)
        return self._now()

    async def _packages(self, request: Request) -> EnvironmentView:
        one = self.views[AGENT]
        if one.action is not None:
            self._move(AGENT, one)
        return self.views[AGENT]

    async def _act_on_packages(self, request: Request) -> EnvironmentView:
        request.path_params["name"] = AGENT
        await self._act(request)
        return self.views[AGENT]

    async def _use(self, request: Request) -> Any:
        from tests.studio.fakes.projects import refusal

        body = UseEngine.model_validate(await request.json())
        self.asked.append((body.name, "use"))
        if self._living():
            return refusal(409, "run.lives", "A run is going on.")
        home = "" if body.name == BUILT_IN else self.views[body.name].home
        engine = ChosenEngine(name=body.name, home=home)
        if engine != self.choice.current:
            self.choice = EngineChoice(current=engine, previous=self.choice.current)
        return self.choice

    def _move(self, name: str, one: EnvironmentView) -> None:
        done = (one.tick.done if one.tick else 0) + max(1, one.packages // self.steps)
        if done < one.packages:
            words = "torch 2.13.0 · 210 of 526 MB"
            share = 0.02 + 0.58 * done / one.packages
            tick = EnvironmentTicked(
                stage="downloading", words=words, done=done, total=one.packages, share=share
            )
            self.change(name, tick=tick)
        elif one.action == "remove":
            self.change(name, action=None, tick=None, state="absent", home="", python="")
        else:
            self.change(name, action=None, tick=None, **at_home(name))

    def _now(self) -> EnvironmentList:
        return EnvironmentList(
            environments=[one for name, one in self.views.items() if name != AGENT],
            choice=self.choice,
            running=self.running,
        )


DAMAGED = Problem(
    code="environment.damaged",
    message="The judge environment is damaged: litellm/main.py is not the file that was installed.",
    hint="Repair it: a new one is made beside it.",
)
FULL = Problem(
    code="environment.disk_full",
    message="Installing vllm-cpu takes 2.4 GB; 1.1 GB are free in /home/mara/.cache/atelier.",
    hint="Make room, or set XDG_CACHE_HOME to a larger disk.",
)
