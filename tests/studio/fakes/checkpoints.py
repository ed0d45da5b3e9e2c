"""Routes of the Checkpoints page for the fake engine: checkpoints, evaluations, exports, arena."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from engine.protocol.records.comparison import (
    Comparison,
    EvaluationResult,
    InspectLogs,
    Standing,
    TagStandings,
)
from engine.protocol.records.conversations import Message
from engine.protocol.records.runs import (
    GroupSummary,
    Interval,
    KeptBy,
    KeptCheckpoint,
    RunSummary,
    Trajectory,
)
from engine.protocol.requests.arena import ArenaTicked, AskArena, Duel, Tally
from engine.protocol.requests.exports import (
    ExportCheckpoint,
    ExportReport,
    ExportTicked,
    FilesCheck,
    FirstDifference,
    GreedyMatch,
    Histogram,
    Limits,
    LogprobGap,
    Parity,
    ParityReport,
    Sameness,
    ServeCommand,
    WeightsCheck,
)
from engine.protocol.requests.runs import PinCheckpoint, StartEvaluation
from studio.store.runs.state import RunState

TAGS = (("one email", 0.46, 0.78), ("two emails", 0.26, 0.61), ("later change", 0.14, 0.52),
        ("not in inbox", 0.38, 0.49))  # fmt: skip
ANSWERS = (
    "The Halden contract ends on 31 March. I did not see whether it was extended, but it is "
    "likely to have been renewed for another year.",
    "Yes, until 30 September. Ingrid Moe confirmed the six-month extension on 4 April; the first "
    "contract ended on 31 March.",
)

HELD_S = 20.0


class FakeCheckpoints:
    """Checkpoint routes; `states` returns a run's folded state, `put` adds a run."""

    def __init__(
        self, states: Callable[[str], RunState], put: Callable[[StartEvaluation], RunSummary]
    ) -> None:
        self._states, self._put = states, put
        self.pinned: dict[int, str] = {}
        self.elsewhere: set[int] = set()
        """Steps whose files are only on a server."""
        self.dropped: set[int] = set()
        self.asked: list[AskArena] = []
        self.go_on = threading.Event()
        """While cleared, arena answers pause after their first word."""
        self.go_on.set()
        self.votes = 0
        self.exports: list[ExportCheckpoint] = []
        self.export_s = 0.1
        self.verdict: Parity = "equal"
        self.done = 192

    def routes(self) -> list[tuple[str, Callable[..., Any], str]]:
        return [
            ("/runs/{run}/checkpoints", self._checkpoints, "GET"),
            ("/runs/{run}/checkpoints/{step:int}/pin", self._pin, "POST"),
            ("/runs/{run}/checkpoints/{step:int}", self._delete, "DELETE"),
            ("/runs/{run}/checkpoints/{step:int}/export", self._export, "POST"),
            ("/runs/{run}/evaluation", self._evaluation, "GET"),
            ("/runs/{run}/inspect", self._logs, "GET"),
            ("/runs/{run}/inspect/{number:int}", self._log, "GET"),
            ("/evaluations", self._evaluate, "POST"),
            ("/arena", self._tally, "GET"),
            ("/arena", self._ask, "POST"),
        ]

    async def _checkpoints(self, request: Request) -> list[KeptCheckpoint]:
        state = self._states(request.path_params["run"])
        tests = {one.step: one.reward for one in state.validations}
        checkpoints = [one for one in state.checkpoints if one.step not in self.dropped]
        return [
            KeptCheckpoint(
                checkpoint=one,
                state="elsewhere" if one.step in self.elsewhere else "whole",
                kept_by=self._why(one.step, place, len(checkpoints)),
                note=self.pinned.get(one.step, ""),
                validation=tests.get(one.step),
                win_rate=state.win_rates.get(one.step),
                loss=one.metrics.get("validation/loss"),
            )
            for place, one in enumerate(checkpoints)
        ]

    def _why(self, step: int, place: int, count: int) -> tuple[KeptBy, ...]:
        pinned: tuple[KeptBy, ...] = ("pinned",) if step in self.pinned else ()
        return (*pinned, "newest") if place >= count - 5 else pinned

    async def _pin(self, request: Request) -> list[KeptCheckpoint]:
        body, step = PinCheckpoint.model_validate(await request.json()), request.path_params["step"]
        self.pinned.pop(step, None)
        if body.pinned:
            self.pinned[step] = body.note
        return await self._checkpoints(request)

    async def _delete(self, request: Request) -> list[KeptCheckpoint]:
        self.dropped.add(request.path_params["step"])
        return await self._checkpoints(request)

    async def _evaluate(self, request: Request) -> RunSummary:
        return self._put(StartEvaluation.model_validate(await request.json()))

    async def _evaluation(self, request: Request) -> EvaluationResult:
        return result(self.done)

    async def _logs(self, request: Request) -> InspectLogs:
        return InspectLogs(names=["a.eval", "b.eval"])

    async def _log(self, request: Request) -> Response:
        return Response(b"log %d" % request.path_params["number"], media_type="application/zip")

    async def _tally(self, request: Request) -> Tally:
        share = Interval(mean=0.75, low=0.51, high=0.9, count=self.votes)
        pair = Duel(name="amber-kestrel@40", against="base", wins=12, ties=6, losses=2, share=share)
        return Tally(run_id="01JD5ARENA", votes=self.votes, pairs=[pair] if self.votes else [])

    async def _export(self, request: Request) -> Response:
        body = ExportCheckpoint.model_validate(await request.json())
        self.exports.append(body)
        step = request.path_params["step"]
        return StreamingResponse(self._exporting(body, step), media_type="application/x-ndjson")

    async def _exporting(self, asked: ExportCheckpoint, step: int) -> AsyncIterator[bytes]:
        for place, phase in enumerate(("checking", "reference", "writing", "reading_back")):
            tick = ExportTicked(phase=phase, words="", done=place, total=4, share=place / 4)  # type: ignore[arg-type]
            yield tick.model_dump_json().encode() + b"\n"
            await asyncio.sleep(self.export_s / 4)
        yield export_report(asked, step, self.verdict).model_dump_json().encode() + b"\n"

    async def _ask(self, request: Request) -> Response:
        body = AskArena.model_validate(await request.json())
        self.asked.append(body)
        return StreamingResponse(self._answers(body), media_type="application/x-ndjson")

    async def _answers(self, asked: AskArena) -> AsyncIterator[bytes]:
        ticks = [ArenaTicked(kind="begun", names=asked.models, run_id="01JD5ARENA")]
        for place, name in enumerate(asked.models):
            answer = ANSWERS[place % 2]
            words = answer.split(" ")
            ticks += [ArenaTicked(kind="said", place=place, text=f"{word} ") for word in words]
            attempt = trajectory_of(asked, place, name, answer)
            ticks.append(ArenaTicked(kind="ended", place=place, trajectory=attempt))
        group = GroupSummary(
            split="validation", step=len(self.asked), group=0, scenario_id="chat", title="",
            rewards=[None] * len(asked.models), mean=None, std=None, signal=False,
        )  # fmt: skip
        ticks.append(ArenaTicked(kind="stored", group=group, run_id="01JD5ARENA"))
        for one in ticks:
            yield one.model_dump_json().encode() + b"\n"
            await asyncio.sleep(0.005)
            if one.kind == "said":
                await asyncio.to_thread(self.go_on.wait, HELD_S)


def trajectory_of(body: AskArena, place: int, name: str, answer: str) -> Trajectory:
    chat = body.chats[place if len(body.chats) > 1 else 0] if body.chats else []
    messages = [Message.model_validate(one) for one in chat] or [
        Message(role="user", content="Did the Halden contract get extended, and until when?"),
        Message(
            role="assistant", tool_calls=[_call("search_inbox", '{"words": ["Halden contract"]}')]
        ),
        Message(role="tool", content="msg_0418, msg_1127", tool_call_id="search_inbox"),
        Message(role="assistant", tool_calls=[_call("read_email", '{"id": "msg_1127"}')]),
        Message(role="tool", content="Extended by six months.", tool_call_id="read_email"),
    ]
    return Trajectory(
        id=f"v{place}", split="validation", step=1, group=0, index=place, scenario_id="chat",
        title="", reward=None if body.chats else 0.31 + 0.6 * place, turns=1 if body.chats else 3,
        parts={} if body.chats else {"answer": 0.2 + 0.4 * place, "steps": 0.11 + 0.2 * place},
        sampled_tokens=len(answer) // 4, duration_s=2.4 + place,
        messages=[*messages, Message(role="assistant", content=answer)], contestant=name,
    )  # fmt: skip


def _call(name: str, arguments: str) -> dict[str, Any]:
    return {"id": name, "function": {"name": name, "arguments": arguments}}


def result(done: int) -> EvaluationResult:
    return EvaluationResult(
        done=done, total=192, scenarios=96, attempts=1, seed=7, judged=False,
        standings=[_standing("base", 0.31, 96), _standing("amber-kestrel@40", 0.64, 96, 0.33)],
        tags=[
            TagStandings(
                tag=tag, scenarios=24,
                standings=[_standing("base", low, 24), _standing("step", high, 24, high - low)],
            )
            for tag, low, high in TAGS
        ],
    )  # fmt: skip


def _standing(name: str, mean: float, count: int, gain: float | None = None) -> Standing:
    half = 0.9 / count**0.5
    versus = None
    if gain is not None:
        better = gain > half
        versus = Comparison(
            against="base",
            difference=Interval(mean=gain, low=gain - half, high=gain + half, count=count),
            p=0.0004 if better else 0.21, wins=count // 2, ties=count // 3, losses=count // 6,
            word="better" if better else "no difference shown",
        )  # fmt: skip
    return Standing(
        name=name, kind="base" if gain is None else "checkpoint", attempts=count, unscored=0,
        reward=Interval(mean=mean, low=mean - half, high=mean + half, count=count),
        latency_median_s=2.4, latency_p90_s=4.1, tokens_mean=311, usd_per_1000=None, versus=versus,
    )  # fmt: skip


def export_report(asked: ExportCheckpoint, step: int, verdict: Parity) -> ExportReport:
    edges = [0.0, *(10.0 ** (n / 6) for n in range(-42, 7)), 1000.0]
    bell = [4, 9, 22, 44, 90, 150, 230, 310, 370, 330, 260, 150, 70, 22, 6, 1]
    counts = [12, *[0] * 16, *bell, *[0] * (len(edges) - 18 - len(bell))]
    differs = verdict == "differs"
    first = FirstDifference(
        prompt="Until when?", reference="30 September", exported="31 March", position=0, gap=2.1
    )
    parity = ParityReport(
        verdict=verdict,
        failures=["1,204 weights are not base + adapter: the adapter seems merged twice."]
        if differs else [],
        forced=differs,
        format=asked.format, dtype=asked.dtype or "bfloat16", computed_in="float32", device="CPU",
        limits=Limits(largest=0.02, mean=0.01, p99=0.02, tie=0.05, verdict="equal", reason=""),
        files=FilesCheck(files=5, bytes=269_000_000),
        weights=WeightsCheck(tensors=272, adapted=210, numbers=134_515_008,
                             outside=1204 if differs else 0),
        logprobs=LogprobGap(sequences=32, tokens=4096, mean=0.0041, p99=0.012, largest=0.0163,
                            histogram=Histogram(edges=edges, counts=counts)),
        greedy=GreedyMatch(prompts=32, same=29 if differs else 32, ties=0,
                           first=first if differs else None),
        same=Sameness(chat_template=True, tokenizer=True, stop_tokens=True, config=True),
        seconds=42.0,
    )  # fmt: skip
    commands = [
        ServeCommand(tool="vLLM", command=f"vllm serve {asked.out} --dtype bfloat16"),
        ServeCommand(tool="Atelier", command=f"atelier serve-model {asked.out}",
                     note="For a quick try: an OpenAI-compatible endpoint on this machine."),
    ]  # fmt: skip
    path = "" if differs and not asked.force else asked.out
    return ExportReport(run_id="x", step=step, path=path, bytes=269_000_000, parity=parity,
                        commands=commands)  # fmt: skip


def evaluation_run(asked: StartEvaluation, number: int) -> RunSummary:
    return RunSummary(
        id=f"01JD5EVAL{number:017}", name="violet-finch", kind="evaluation", project="inbox-scout",
        project_path=asked.project, path=f"{asked.project}/runs/x", state="finished", step=0,
        steps=0, started_at=time.time(), changed_at=time.time(), trajectories=192,
    )  # fmt: skip
