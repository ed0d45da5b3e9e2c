"""Routes of the Judge page for the fake engine: rubric versions, prices, trials, agreement."""

import asyncio
import random
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from engine.protocol.records.judging import (
    Criterion,
    Disagreement,
    JudgeOption,
    RubricVersion,
    RubricView,
    Suggestion,
    TrialPrice,
    Tried,
    version_of,
)
from engine.protocol.records.labels import Agreement, Annotator, AnnotatorPair, Annotators
from engine.protocol.records.runs import GroupSummary, Interval

SOURCE = """---
criteria:
- name: Right answer
  weight: 0.4
- name: Cites the email
  weight: 0.25
- name: Admits not finding it
  weight: 0.2
- name: Few, useful steps
  weight: 0.15
---

# A good answer to an inbox question

The assistant searches one person's mail and answers
one question. Rank the attempts against each other,
not against perfection.

## Right answer
The answer matches what the newest relevant email says.
Half right counts half.

## Admits not finding it
"I could not find it" beats a confident guess. It loses
to any correct answer, and after fewer than two searches.
"""

HELD_S = 20.0


class FakeTrials:
    """Rubric versions, judges and trials of a simulated project."""

    def __init__(self, groups: Callable[[str], list[GroupSummary]]) -> None:
        self._groups = groups
        self.sources = [SOURCE.replace("newest relevant email", "mail"), SOURCE]
        self.trials: list[dict[str, Any]] = []
        self.options = [
            JudgeOption(
                model="ollama_chat/qwen3:8b",
                title="qwen3:8b",
                base_url="http://127.0.0.1:11434",
                where="Ollama on this machine",
            )
        ]
        self.judged = True
        self.cached = 0
        self.pause_s = 0.0
        self.go_on = threading.Event()
        """While cleared, a trial pauses after its first group."""
        self.go_on.set()

    def routes(self) -> list[tuple[Any, ...]]:
        """Return (path, handler, methods...)."""
        return [
            ("/rubric", self._rubric, "GET", "PUT"),
            ("/judges", self._judges),
            ("/runs/{run}/agreement", self._agreement),
            ("/runs/{run}/disagreements", self._disagreements),
            ("/runs/{run}/annotators", self._annotators),
            ("/runs/{run}/judge", self._try, "POST"),
            ("/runs/{run}/judge/price", self._price, "POST"),
            ("/runs/{run}/judge/suggest", self._suggest, "POST"),
        ]

    def _view(self) -> RubricView:
        now = time.time()
        versions = [
            RubricVersion(number=n, version=version_of(s), source=s, at=now - 900 / n, who="dana")
            for n, s in enumerate(self.sources, 1)
        ]
        source = self.sources[-1] if self.sources else ""
        names = ("Right answer", "Cites the email") if source else ()
        return RubricView(
            source=source,
            version=version_of(source),
            criteria=tuple(Criterion(name=name) for name in names),
            versions=versions,
        )

    async def _rubric(self, request: Request) -> RubricView:
        if request.method == "PUT":
            self.sources.append((await request.json())["source"])
        return self._view()

    async def _judges(self, request: Request) -> list[JudgeOption]:
        return self.options

    async def _agreement(self, request: Request) -> list[Agreement]:
        if not self.judged:
            return []
        own = Interval(mean=0.83, low=0.71, high=0.93, count=8)
        shapes = (
            (24, 0.71, 0.62, 0.79, 0.06, 0.94, 0.08),
            (24, 0.52, 0.39, 0.64, 0.14, 0.88, 0.21),
        )
        rows = [
            Agreement(
                judge="openai/o4-mini",
                rubric=version_of(source),
                groups=groups,
                pairs=62,
                tau=Interval(mean=mean, low=low, high=high, count=groups),
                accuracy=(1 + mean) / 2,
                flips=flips,
                stability=stable,
                length=length,
                self_consistency=own,
                repeats=8,
                usd=0.92,
            )
            for source, (groups, mean, low, high, flips, stable, length) in zip(
                reversed(self.sources[-2:]), shapes, strict=False
            )
        ]
        return rows

    async def _annotators(self, request: Request) -> Annotators:
        people = [
            Annotator(name=name, labels=n, groups=n, blind=n // 2)
            for name, n in (("dana", 24), ("mirko", 11))
        ]
        tau = Interval(mean=0.64, low=0.41, high=0.8, count=9)
        pair = AnnotatorPair(one="dana", other="mirko", groups=9, pairs=31, tau=tau, accuracy=0.82)
        return Annotators(annotators=people, pairs=[pair])

    async def _disagreements(self, request: Request) -> list[Disagreement]:
        groups = self._groups(request.path_params["run"])[:4]
        cases = [
            Disagreement(
                split=group.split,
                step=group.step,
                group=group.group,
                title=group.title,
                judge=request.query_params["judge"],
                rubric=request.query_params["rubric"],
                better=5,
                worse=2,
                better_score=0.55,
                worse_score=0.71,
                reason="It cites the booking mail, and gives the time as it was first planned.",
                why="The retimed flight is what counts.",
            )
            for group in groups
        ]
        return cases

    async def _price(self, request: Request) -> TrialPrice:
        groups = self._groups(request.path_params["run"])[:24]
        calls = len(groups) - self.cached
        question = [
            {"role": "system", "content": "You compare attempts of an AI agent at one task."},
            {
                "role": "user",
                "content": "<<4f1c attempt BK>>\nThe flight leaves at 9.\n<<4f1c end>>",
            },
        ]
        return TrialPrice(
            groups=len(groups),
            calls=calls,
            most_calls=calls * 6,
            cached=self.cached,
            tokens=calls * 1900,
            usd=calls * 0.0065,
            most_usd=calls * 0.05,
            left_usd=4.16,
            seconds=calls * 2.1 / 8,
            question=question,
        )

    async def _try(self, request: Request) -> Response:
        body = await request.json()
        self.trials.append(body)
        groups = self._groups(request.path_params["run"])[:24]

        async def lines() -> AsyncIterator[bytes]:
            for group in groups:
                await asyncio.sleep(self.pause_s)
                yield rejudged(group).model_dump_json().encode() + b"\n"
                await asyncio.to_thread(self.go_on.wait, HELD_S)

        return StreamingResponse(lines(), media_type="application/x-ndjson")

    async def _suggest(self, request: Request) -> Suggestion:
        source = self.sources[-1].replace("Half right counts half.", "A later change wins.")
        return Suggestion(source=source, cases=4, usd=0.0031)


def rejudged(group: GroupSummary) -> Tried:
    """Return the group under another rubric: some scores change."""
    chance = random.Random(f"{group.step} {group.group}")
    names = [f"t{group.step:05d}-{group.group:03d}-{n:03d}" for n in range(len(group.rewards))]
    before = {n: chance.random() for n in names}
    after = {
        n: min(1.0, max(0.0, v + (chance.uniform(-0.5, 0.5) if chance.random() < 0.25 else 0)))
        for n, v in before.items()
    }
    return Tried(
        split=group.split,
        step=group.step,
        group=group.group,
        title=group.title,
        before=before,
        after=after,
        indexes={n: i for i, n in enumerate(names)},
        advantages={n: (before[n] - 0.5, after[n] - 0.5) for n in names},
        pairs=chance.choice((0, 2, 3)),
        obeyed_before=1,
        obeyed=2,
    )
