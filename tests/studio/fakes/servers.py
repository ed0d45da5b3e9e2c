"""Server routes for the fake engine: connections that prompt, install, fail and recover."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from engine.protocol import API_VERSION
from engine.protocol.problems import Problem
from engine.protocol.records.machine.hardware import Check
from engine.protocol.records.runs import RunSummary
from engine.protocol.requests.remote import (
    ActOnHost,
    AddHost,
    Answer,
    FarCard,
    FarEngine,
    HostList,
    HostReport,
    HostSpec,
    HostTick,
    HostView,
    Moved,
    MoveTicked,
    Question,
    SendRun,
)
from engine.protocol.requests.runs import EngineInfo

BUILD = "0.1.0-3f2a9c1be07d-engine-gpu"
CARD = FarCard(name="NVIDIA H200", memory_bytes=150_323_855_360, driver="580.95")
CHECKS = [
    Check(name="System", state="good", words="Linux on x86_64, glibc 2.35"),
    Check(name="Python", state="good", words="3.11 (/usr/bin/python3.11)"),
    Check(name="GPU", state="good", words="NVIDIA H200 (140 GiB), driver 580.95"),
    Check(name="Disk", state="good", words="412.6 GB free in /home/mara/.atelier-engine"),
    Check(
        name="Logout",
        state="warn",
        words="This server ends your processes when you log out.",
        hint="Run `loginctl enable-linger` there once; otherwise runs end when you disconnect.",
    ),
]
REPORT = HostReport(
    server="mara@box.lab:22", folder="/home/mara/.atelier-engine", os="Linux", machine="x86_64",
    host="box", libc="2.35", cores=64, memory_bytes=503_000_000_000, free_bytes=412_600_000_000,
    filesystem="ext4", shared=False, cards=[CARD], python="3.11 /usr/bin/python3.11",
    engine="engine-gpu", download_bytes=4_200_000_000, installed_bytes=9_500_000_000,
    engines=[], checks=CHECKS,
)  # fmt: skip
INFO = EngineInfo(
    version="0.1.0", api=API_VERSION, pid=977, workspace="/home/mara/.atelier-engine/workspace",
    started_at=1_790_000_000.0, device="H200 · 140 GB", python="/usr/bin/python3.11",
    memory_bytes=900_000_000, memory_total_bytes=503_000_000_000, living_runs=0,
    build="3f2a9c1be07d", host="box",
)  # fmt: skip
NOT_INSTALLED = Problem(
    code="host.not_installed",
    message="There is no engine on box yet.",
    hint="Check the server, then install the engine.",
)
UNREACHABLE = Problem(
    code="ssh.unreachable",
    message="mara@box.lab:22 cannot be reached: no route to host.",
    hint="Check the network here, and the VPN if one is needed.",
)
KEY_CHANGED = Problem(
    code="ssh.host_key_changed",
    message="mara@box.lab:22 shows ssh-ed25519 SHA256:9vK…, but ssh-ed25519 SHA256:Uo3… is on "
    "record for it: somebody may have put themselves between; nothing was sent to it.",
    hint="Only if its administrator confirms the new key, run `ssh-keygen -R box.lab` and connect "
    "again.",
)
OTHER_HOME = Problem(
    code="host.other_home",
    message="This server's engine works for mara-desktop now.",
    hint="Disconnect the other machine, or take over on this one. Runs continue either way.",
)
HOST_KEY = Question(
    id="q1", kind="host_key", host="mara@box.lab:22", via="mara@gate.lab:22",
    prompt="The key of mara@box.lab:22 is not on record yet. Is it the right one?",
    detail="ssh-ed25519 SHA256:Uo3zqkR1cVvVg2yQm0H8H2sY0hJt5Xc1mZk7bqfQ9dE",
)  # fmt: skip
PASSPHRASE = Question(
    id="q2", kind="passphrase", host="mara@box.lab:22",
    prompt="Passphrase of /home/mara/.ssh/id_ed25519",
)  # fmt: skip
CODE = Question(
    id="q3", kind="code", host="mara@gate.lab:22", prompt="Verification code:", echo=True
)
TRIES, LOOK_S = 3, 0.01


def view(name: str = "box", state: str = "away", **values: Any) -> HostView:
    """Return a server view; a connected one has a report and engine info."""
    more: dict[str, Any] = {}
    if state == "connected":
        engines = [FarEngine(id=BUILD, current=True)]
        report = REPORT.model_copy(update={"engines": engines})
        more = {"report": report, "info": INFO, "latency_s": 0.012}
    spec = values.pop("spec", None) or HostSpec(name=name, address="mara@box.lab")
    return HostView.model_validate({"spec": spec, "state": state, **more, **values})


class FakeHosts:
    """Fake servers: `change()` sets the state; `asks`, `meets` and `installed` define what a
    connection does."""

    def __init__(self, summaries: dict[str, RunSummary], elsewhere: set[int]) -> None:
        self._summaries = summaries
        self.elsewhere = elsewhere
        """Steps of checkpoints whose files are only on a server."""
        self.revision = 1
        self.views: dict[str, HostView] = {}
        self.known = ["gate", "lab-3"]
        self.asks: dict[str, list[tuple[Question, str]]] = {}
        """Prompts of a connection with their correct answers."""
        self.meets: dict[str, Problem] = {}
        """Problem that a connection runs into."""
        self.installed: set[str] = set()
        self.acted: list[tuple[str, str]] = []
        self.answers: list[tuple[str, str | None]] = []
        self.lives_on: dict[str, str] = {}
        """Server name by run id."""
        self.pace_s = 0.05
        self.polls = 0
        self.closing = False
        """Set on shutdown: long polls return at once."""
        self._waiting: dict[str, asyncio.Future[str | None]] = {}
        self._jobs: dict[str, asyncio.Task[None]] = {}

    def routes(self) -> list[tuple[str, Callable[..., Any], str]]:
        return [
            ("/hosts", self._list, "GET"),
            ("/hosts", self._add, "POST"),
            ("/hosts/known", self._known, "GET"),
            ("/hosts/{host}", self._act, "POST"),
            ("/hosts/{host}/answer", self._answer, "POST"),
            ("/runs/{run}/checkpoints/{step:int}/fetch", self._fetch, "POST"),
            ("/runs/{run}/bring_home", self._bring_home, "POST"),
            ("/runs/{run}/send", self._send, "POST"),
        ]

    # Called from a test's thread

    def put(self, one: HostView) -> None:
        self.views[one.spec.name] = one
        if one.state == "connected":
            self.installed.add(one.spec.name)
        self.revision += 1

    def change(self, name: str, **values: Any) -> None:
        fresh = self.views[name].model_copy(update=values)
        self.put(fresh)

    # Routes

    def _now(self) -> HostList:
        hosts = [self.views[name] for name in sorted(self.views)]
        return HostList(revision=self.revision, hosts=hosts)

    async def _list(self, request: Request) -> HostList:
        self.polls += 1
        after = int(request.query_params.get("after", 0))
        for _ in range(int(float(request.query_params.get("wait", 0)) / LOOK_S)):
            if self.revision != after or self.closing:
                break
            await asyncio.sleep(LOOK_S)
        return self._now()

    async def _known(self, request: Request) -> HostList:
        return self._now().model_copy(update={"known": self.known})

    async def _add(self, request: Request) -> HostList:
        spec = AddHost.model_validate(await request.json()).spec
        self.put(view(spec.name, spec=spec))
        return self._now()

    async def _act(self, request: Request) -> HostList:
        name = request.path_params["host"]
        action = ActOnHost.model_validate(await request.json()).action
        self.acted.append((name, action))
        if job := self._jobs.pop(name, None):
            job.cancel()
        if action == "forget":
            del self.views[name]
            self.revision += 1
        elif action == "disconnect":
            self.put(view(name, spec=self.views[name].spec))
        else:
            self._jobs[name] = asyncio.create_task(self._work(name, action))
        return self._now()

    async def _answer(self, request: Request) -> Response:
        answer = Answer.model_validate(await request.json())
        self.answers.append((answer.question, answer.value))
        self._waiting.pop(answer.question).set_result(answer.value)
        return Response(status_code=204)

    # Connections

    async def _work(self, name: str, action: str) -> None:
        self.change(name, state="connecting", problem=None, questions=[])
        await asyncio.sleep(self.pace_s)
        for question, right in self.asks.get(name, ()):
            if not await self._ask(name, question, right):
                return
        if problem := self.meets.get(name):
            passing = problem.code in ("ssh.unreachable", "ssh.lost")
            failures = self.views[name].failures + 1 if passing else 0
            state = "reconnecting" if passing else "stopped"
            at = time.time() + 8
            self.change(name, state=state, problem=problem, failures=failures, retry_at=at)
            return
        if action == "install":
            await self._install(name)
        elif action == "remove":
            self.installed.discard(name)
            self.put(view(name, spec=self.views[name].spec))
            return
        if name in self.installed:
            self.put(view(name, "connected", spec=self.views[name].spec))
        else:
            self.change(name, state="stopped", problem=NOT_INSTALLED, report=REPORT)

    async def _ask(self, name: str, question: Question, right: str) -> bool:
        """Ask a prompt up to TRIES times; return whether the answer was correct."""
        for number in range(TRIES):
            prompt = question.model_copy(update={"id": f"{question.id}.{number}"})
            self._waiting[prompt.id] = asyncio.get_running_loop().create_future()
            self.change(name, state="asking", questions=[prompt])
            answer = await self._waiting[prompt.id]
            self.change(name, state="connecting", questions=[])
            if answer is None:
                problem = {"code": "ssh.given_up", "message": "It was not connected to."}
                self.change(name, state="stopped", problem=Problem(**problem))
                return False
            if answer == right:
                return True
        problem = {
            "code": "ssh.password_wrong",
            "message": "box rejected the password or code that you entered.",
        }
        self.change(name, state="stopped", problem=Problem(**problem))
        return False

    async def _install(self, name: str) -> None:
        total = 526_000_000
        for done in range(0, total, total // 4):
            tick = HostTick(stage="uploading", words="torch 2.13.0", done=done, total=total)
            self.change(name, state="installing", tick=tick)
            await asyncio.sleep(self.pace_s)
        self.change(name, state="starting", tick=None)
        self.installed.add(name)

    # Moves between machines

    def away(self, run_id: str) -> Problem | None:
        """Return why the server of a run cannot be reached, or None."""
        name = self.lives_on.get(run_id, "")
        if not name or self.views[name].state == "connected":
            return None
        words = "Connect to the server; remote runs continue meanwhile."
        return Problem(code="host.away", message=f"{name} is not connected.", hint=words)

    async def _fetch(self, request: Request) -> Response:
        step = request.path_params["step"]

        def done() -> str:
            self.elsewhere.discard(step)
            return f"/runs/checkpoints/step-{step:06d}"

        return self._moving(request.path_params["run"], done)

    async def _bring_home(self, request: Request) -> Response:
        run_id = request.path_params["run"]
        return self._moving(run_id, lambda: self._place(run_id, ""))

    async def _send(self, request: Request) -> Response:
        host = SendRun.model_validate(await request.json()).host
        run_id = request.path_params["run"]
        return self._moving(run_id, lambda: self._place(run_id, host))

    def _place(self, run_id: str, host: str) -> str:
        self.lives_on[run_id] = host
        self._summaries[run_id] = self._summaries[run_id].model_copy(update={"host": host})
        return self._summaries[run_id].path

    def _moving(self, run_id: str, done: Callable[[], str]) -> Response:
        problem = self.away(run_id)

        async def lines() -> AsyncIterator[bytes]:
            if problem is not None:
                yield problem.model_dump_json().encode() + b"\n"
                return
            for share in range(0, 85, 21):
                tick = MoveTicked(done=share * 1_000_000, total=84_000_000)
                yield tick.model_dump_json().encode() + b"\n"
                await asyncio.sleep(self.pace_s)
            yield Moved(path=done()).model_dump_json().encode() + b"\n"

        return StreamingResponse(lines(), media_type="application/x-ndjson")
