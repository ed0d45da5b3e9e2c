"""Session between a script and its run: the process, its submissions, and the responses.

One per active run. It survives restarts of the policy and is closed with the run.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path

import psutil

from engine.integrations.scripts.completions import Completions
from engine.integrations.scripts.gateway import ScriptSessions
from engine.integrations.scripts.logs import Logs
from engine.integrations.scripts.submissions import Submission, SubmissionFiles
from engine.integrations.scripts.trajectories import trajectories_of
from engine.protocol.problems import Problem, Refused
from engine.protocol.records.runs import RunSpec
from engine.protocol.requests.scripts import OpenOutside, Trained, TrainGroups
from engine.rollout.rendering.chat import ChatFormat
from engine.runtime.closing import cancel
from engine.storage.run_folder.run import Run

COMPLETIONS = "completions.jsonl"
SUBMISSIONS = "handed"
LOGGED = "logged.jsonl"
LOOK_S = 2.0


class Script:
    """Process of the script that owns the run."""

    def __init__(self, request: OpenOutside) -> None:
        """Find the process. Raises Refused if it does not exist on this machine."""
        self.pid, self.key = request.pid, request.key
        try:
            self._started = psutil.Process(self.pid).create_time()
        except psutil.Error as error:
            raise Refused.of(
                "outside.no_process",
                f"There is no process {self.pid} on the engine's machine.",
                "Run the script on the engine's machine.",
            ) from error

    @property
    def alive(self) -> bool:
        try:
            process = psutil.Process(self.pid)
            same = process.create_time() == self._started  # numbers of processes come again
            return same and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False


class ScriptSession:
    """Session of one script and run; `close` it with the run."""

    def __init__(self, folder: Path, spec: RunSpec, script: Script) -> None:
        self.script = script
        self.known = Completions(folder / COMPLETIONS)
        self.files = SubmissionFiles(folder / SUBMISSIONS)
        self.logs = Logs(folder / LOGGED)
        self.sessions = ScriptSessions(spec, self.known)
        self.waiting: deque[Submission] = deque()
        self.left: tuple[str, bool] | None = None
        """Reason why the script has left, and whether it had finished; None while it is there."""
        self._spec = spec
        self._chat: ChatFormat | None = None
        self._step = 0
        self._handing = asyncio.Lock()
        self._answers: dict[str, asyncio.Future[Trained]] = {}
        self._open = asyncio.Event()

    def open(self, run: Run, chat: ChatFormat, step: int) -> None:
        """Let the script submit groups for step `step` + 1."""
        self._run, self._chat, self._step = run, chat, step
        self._open.set()

    async def ready(self) -> int:
        """Wait until the script may submit groups; return the number of updates so far. Raises
        Refused if the run has ended."""
        await self._open.wait()
        if self._chat is None:
            raise self._gone
        return self._step

    async def chat(self) -> ChatFormat:
        await self.ready()
        assert self._chat is not None
        return self._chat

    async def train(self, request: TrainGroups) -> Trained:
        """Submit groups; return when the step is stored. Raises Refused or ConfigError if the
        submission is rejected as a whole."""
        async with self._handing:
            if (answer := self._answers.get(request.key)) is None:
                done = await self.ready()
                answer = asyncio.get_running_loop().create_future()
                found = await asyncio.to_thread(self.files.newest)
                if found is None or found.key != request.key:
                    await self._hand_in(request, done + 1)
                elif found.step <= done:
                    return trained_before(self._run, found)
                self._answers[request.key] = answer
        return await asyncio.shield(answer)

    async def _hand_in(self, request: TrainGroups, step: int) -> None:
        if self.waiting:
            raise Refused.of(
                "outside.busy",
                f"Step {step} is being trained by another call of train().",
                "Await each train() before the next.",
            )
        chat, temperature = await self.chat(), self._spec.config.train.temperature
        groups, dropped = await asyncio.to_thread(
            trajectories_of, request.groups, "train", step, self.known.held, chat, temperature
        )
        if not groups:
            raise Refused.of(
                "outside.no_attempts",
                f"Step {step} has no trajectories: all {len(request.groups)} submitted groups are "
                "empty.",
                "Submit groups with at least one trajectory or exception.",
            )
        submission = Submission(
            key=request.key,
            step=step,
            lr=request.lr,
            algorithm=request.algorithm,
            save=request.save,
            dropped=dropped,
            groups=groups,
        )
        await asyncio.to_thread(self.files.write, submission)
        self.waiting.append(submission)
        self._run.orders.changed.set()

    def answer(self, key: str, trained: Trained) -> None:
        """Return `trained` to the call of `train` that submitted this key: its step is stored."""
        self._step = trained.step
        if (future := self._answers.pop(key, None)) and not future.done():
            future.set_result(trained)

    def leave(self, reason: str, finished: bool) -> None:
        """Record why the script has left and whether it `finished` (the first call counts), and
        wake the training loop."""
        self.left = self.left or (reason, finished)
        if self._open.is_set() and self._chat:
            self._run.orders.changed.set()

    async def watch(self) -> None:
        """Poll the script's process until it ends."""
        while self.script.alive:  # noqa: ASYNC110 - no event says that somebody else's process ends
            await asyncio.sleep(LOOK_S)
        self.leave("The script has ended.", False)

    def close(self, problem: Problem | None) -> None:
        """End the session; waiting calls of the script raise Refused with the problem that failed
        the run (None: with the message that the run has ended)."""
        self._gone = Refused(problem) if problem else _ended(self._spec)
        self._chat = None
        self._open.set()
        for future in self._answers.values():
            if not future.done():
                future.set_exception(self._gone)
                future.exception()  # who asked may be gone as well
        self._answers.clear()


def trained_before(run: Run, submission: Submission) -> Trained:
    """Return the result of a submission whose step was trained already, from the stored run."""
    events = run.reader.events_of("step.finished")
    event = next(e for e in reversed(events) if getattr(e, "step", None) == submission.step)
    checkpoints = [one for one in run.reader.checkpoints() if one.step == submission.step]
    return Trained(
        step=submission.step,
        metrics=getattr(event, "metrics", {}),
        skipped=getattr(event, "skipped", False),
        checkpoint=str(run.folder / checkpoints[0].path) if checkpoints else "",
    )


def _ended(spec: RunSpec) -> Refused:
    return Refused.of(
        "outside.ended",
        f"The run {spec.name} has ended.",
        "Start the script again; the run then resumes where it stopped.",
    )


@contextlib.asynccontextmanager
async def watch_script(session: ScriptSession) -> AsyncIterator[None]:
    """Watch the script's process during the block; if it ends, the training loop ends as well."""
    watcher = asyncio.create_task(session.watch(), name=f"script {session.script.pid}")
    try:
        yield
    finally:
        await cancel(watcher)
