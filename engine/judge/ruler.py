"""RULER: scores the trajectories of a group relative to each other, with one or several judges.

Equal trajectories are shown once. A judge scores the group again, in another order, until two of
its rankings agree or `passes` are used up. Trajectories without a valid score, also after one
correction, stay unscored with the reason; nothing is guessed.
"""

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import NamedTuple

from engine.judge.calibration.agreement import majority, tau_of
from engine.judge.calibration.examples import JudgeExample, nearest
from engine.judge.prompting.prompt import Messages, art_messages, correction, relative_messages
from engine.judge.prompting.reply import (
    Fault,
    Reading,
    RolloutScore,
    is_quoted,
    read_art_reply,
    read_reply,
)
from engine.judge.prompting.rubric import parse_rubric
from engine.judge.prompting.transcript import (
    lines_of,
    openai_messages,
    part_of,
    shared_start,
    without_reasoning,
)
from engine.judge.providers.ledger import Ledger
from engine.protocol.config.project import JudgeConfig
from engine.protocol.problems import ConfigError, Problem
from engine.protocol.records.judging import Call, Quote, Rubric, Verdict
from engine.protocol.records.runs import Trajectory
from engine.runtime.seeds import derive


class JudgeInput(NamedTuple):
    """Group as it is shown to a judge."""

    attempts: list[Trajectory]
    """Distinct trajectories."""
    start: str
    """Text of the messages that all trajectories begin with."""
    texts: list[str]
    """Text of each trajectory after the shared start."""
    rubric: Rubric
    """Rubric with the examples from labels."""
    lessons: list[str]
    """Ids of the labelled examples in the prompt."""


@dataclass
class PassResults:
    """Scores of one judge for the distinct trajectories of a group, by their index."""

    passes: list[dict[int, RolloutScore]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    problems: dict[int, Problem] = field(default_factory=dict)

    def scores(self, number: int) -> list[float]:
        return [found[number].score for found in self.passes if number in found]

    def stability(self) -> float | None:
        """Mean τ between the scores of consecutive passes; None after one pass."""
        pairs = zip(self.passes, self.passes[1:], strict=False)
        taus = [tau for one, other in pairs if (tau := _tau(one, other)) is not None]
        return fmean(taus) if taus else None

    def is_stable(self, enough: float) -> bool:
        tau = _tau(*self.passes[-2:]) if len(self.passes) > 1 else None
        return tau is not None and tau >= enough


class Ruler:
    """LLM judges of a run with a rubric."""

    def __init__(
        self,
        config: JudgeConfig,
        rubric: Rubric,
        ledger: Ledger,
        seed: int,
        lessons: Callable[[], list[JudgeExample]] = list,
        renewed: Callable[[], str] = str,
    ) -> None:
        """`lessons` returns the labelled examples for the prompt. `renewed` returns the text of a
        rubric that has replaced `rubric` since, or "". Raises ConfigError if the prompt does not
        support the criteria of the rubric."""
        check_fit(config, rubric)
        self._config = config
        self._rubric = rubric
        self._ledger = ledger
        self._seed = seed
        self._lessons = lessons
        self._renewed = renewed

    @property
    def has_criteria(self) -> bool:
        return bool(self._current().criteria)

    async def judge(self, group: list[Trajectory]) -> list[Verdict]:
        """Return one verdict per judge and trajectory, in order; none for failed rollouts."""
        attempts = [one for one in group if can_be_judged(one)]
        if not attempts:
            return []
        exhibit, transcripts, shown = self._exhibit(attempts)
        number = {place: number for number, place in enumerate(dict.fromkeys(shown))}
        results = await asyncio.gather(
            *(self._look(model, exhibit) for model in self._config.models)
        )
        return [
            self._verdict(model, exhibit.rubric, seen, number[place], attempt, transcript)
            for model, seen in zip(self._config.models, results, strict=True)
            for attempt, transcript, place in zip(attempts, transcripts, shown, strict=True)
        ]

    def first_questions(self, model: str, group: list[Trajectory]) -> list[Messages]:
        """First prompt of a judge for a group, in a list that is empty if nothing can be judged."""
        attempts = [one for one in group if can_be_judged(one)]
        if not attempts:
            return []
        exhibit, _, _ = self._exhibit(attempts)
        return [self._question(exhibit, self._order(model, 0, exhibit))[0]]

    def _exhibit(self, attempts: list[Trajectory]) -> tuple[JudgeInput, list[str], list[int]]:
        """Return the judge input, the text of each trajectory, and for each the index of the first
        equal one."""
        if not self._config.show_reasoning:
            attempts = [without_reasoning(one) for one in attempts]
        common = shared_start([one.messages for one in attempts])
        transcripts = [self._lines(one, common, None) for one in attempts]
        shown = self._shown(transcripts)
        first = list(dict.fromkeys(shown))
        start = self._lines(attempts[0], 0, common)
        known = self._lessons() if self._config.prompt == "atelier" else []
        exhibit = JudgeInput(
            [attempts[place] for place in first],
            start,
            [transcripts[place] for place in first],
            self._current().model_copy(update={"lessons": tuple(one.label for one in known)}),
            nearest(known, start),
        )
        return exhibit, transcripts, shown

    def _current(self) -> Rubric:
        newer = self._renewed()
        return parse_rubric(newer) if newer else self._rubric

    def _shown(self, transcripts: list[str]) -> list[int]:
        """Return for each trajectory the index of the first equal one, which is shown for all. With
        ART's prompt, equal ones are shown separately, unless all are equal."""
        if self._config.prompt == "art" and len(set(transcripts)) > 1:
            return list(range(len(transcripts)))
        return [transcripts.index(transcript) for transcript in transcripts]

    def _lines(self, attempt: Trajectory, start: int, end: int | None) -> str:
        part = part_of(attempt, start, end)
        return lines_of(part, self._config.max_chars)

    async def _look(self, model: str, exhibit: JudgeInput) -> PassResults:
        """Let one judge score the group, in several passes until two rankings agree."""
        config, seen = self._config, PassResults()
        most = 1 if config.prompt == "art" or len(exhibit.texts) == 1 else config.passes
        for number in range(most):
            order = self._order(model, number, exhibit)
            found = await self._pass(model, seen, exhibit, order)
            if found:
                seen.passes.append(found)
            if not found or seen.is_stable(config.stable):
                break
        return seen

    def _order(self, model: str, number: int, exhibit: JudgeInput) -> list[int]:
        """Return the order in which pass `number` shows the trajectories."""
        order = list(range(len(exhibit.texts)))
        if self._config.prompt == "atelier":
            key = derive(self._seed, "judge", model, number, *exhibit.texts)
            random.Random(key).shuffle(order)
        return order

    async def _pass(
        self, model: str, seen: PassResults, exhibit: JudgeInput, order: list[int]
    ) -> dict[int, RolloutScore]:
        messages, ids = self._question(exhibit, order)
        call = await self._ledger.ask(model, messages, exhibit.rubric.version)
        seen.calls.append(call.key)
        problem, reading = call.problem, Reading({}, "")
        if problem is None:
            reading = self._read(call, ids, exhibit.rubric)
            if reading.complaint:
                again = correction(messages, call.reply, reading.complaint)
                call = await self._ledger.ask(model, again, exhibit.rubric.version)
                seen.calls.append(call.key)
                if call.problem is None:
                    second = self._read(call, ids, exhibit.rubric)
                    reading = max(second, reading, key=lambda r: (len(r.opinions), not r.complaint))
        for name, number in zip(ids, order, strict=True):
            if name in reading.opinions:
                seen.problems.pop(number, None)
            elif not seen.scores(number):
                seen.problems[number] = problem or _unusable(reading)
        return {order[ids.index(name)]: opinion for name, opinion in reading.opinions.items()}

    def _question(self, exhibit: JudgeInput, order: list[int]) -> tuple[Messages, list[str]]:
        given = exhibit.attempts[0].tools
        if self._config.prompt == "art":
            lists = [openai_messages(part_of(attempt)) for attempt in exhibit.attempts]
            messages = art_messages(lists, exhibit.rubric.source, given or None)
            return messages, [str(number + 1) for number in order]
        tools = json.dumps(given, ensure_ascii=False) if given else ""
        texts = [exhibit.texts[number] for number in order]
        return relative_messages(texts, exhibit.rubric, exhibit.start, tools, exhibit.lessons)

    def _read(self, call: Call, ids: list[str], rubric: Rubric) -> Reading:
        if self._config.prompt == "art":
            return read_art_reply(call.reply, len(ids), call.finish)
        return read_reply(call.reply, ids, rubric, call.finish)

    def _verdict(
        self,
        model: str,
        rubric: Rubric,
        seen: PassResults,
        number: int,
        attempt: Trajectory,
        transcript: str,
    ) -> Verdict:
        scores = seen.scores(number)
        opinions = [found[number] for found in seen.passes if number in found]
        last = opinions[-1] if opinions else RolloutScore(0.0, "", {}, [])
        criteria = {name: fmean(o.criteria[name] for o in opinions) for name in last.criteria}
        return Verdict(
            trajectory_id=attempt.id,
            judge=model,
            rubric=rubric.version,
            score=fmean(scores) if scores else None,
            reason=last.reason,
            criteria=criteria,
            quotes=[Quote(text=q, found=is_quoted(q, transcript)) for q in last.quotes],
            passes=scores,
            calls=seen.calls,
            stability=seen.stability(),
            problem=None if scores else seen.problems.get(number),
        )


def check_fit(config: JudgeConfig, rubric: Rubric) -> None:
    """Raise ConfigError if `config` asks for ART's prompt and the rubric has criteria, which that
    does not support."""
    if config.prompt == "art" and rubric.criteria:
        raise ConfigError.of(
            "judge.no_criteria",
            "ART's prompt does not support weighted criteria, but this rubric has some.",
            'Use judge.prompt = "atelier", or write the criteria into the text of the rubric.',
            where="judge.prompt",
        )


def can_be_judged(attempt: Trajectory) -> bool:
    """Whether a judge can score the trajectory: its rollout succeeded, even if computing its reward
    or an earlier judgement failed."""
    kinds = ("judge.", "reward.")
    return attempt.problem is None or attempt.problem.code.startswith(kinds)


def combined(config: JudgeConfig, verdicts: list[Verdict]) -> dict[str, float]:
    """Score per trajectory over all judges, combined as `config.combine` says (mean, median or
    majority); trajectories without a score are left out."""
    by_judge: dict[str, dict[str, float]] = {}
    for verdict in verdicts:
        if verdict.score is not None:
            by_judge.setdefault(verdict.judge, {})[verdict.trajectory_id] = verdict.score
    names = list(dict.fromkeys(verdict.trajectory_id for verdict in verdicts))
    if config.combine == "majority" and len(config.models) > 1:
        return majority(list(by_judge.values()), names)
    found = {}
    for name in names:
        if scores := [scores[name] for scores in by_judge.values() if name in scores]:
            middle = median if config.combine == "median" else fmean
            found[name] = middle(scores)
    return found


def _tau(one: dict[int, RolloutScore], other: dict[int, RolloutScore]) -> float | None:
    return tau_of(*({str(n): o.score for n, o in found.items()} for found in (one, other)))


UNUSABLE: dict[Fault, tuple[str, str, str]] = {
    "cut": (
        "judge.cut",
        "The judge's answer was cut off at the token limit twice.",
        "Raise judge.max_tokens, or use a judge with less reasoning.",
    ),
    "filtered": (
        "judge.content_filter",
        "The provider's content filter withheld the judge's answer.",
        "Choose another judge for these texts, or label the trajectories yourself.",
    ),
    "form": (
        "judge.no_score",
        "The judge gave no valid score for this trajectory, even after a retry.",
        "Score the trajectory with another judge, or label it yourself.",
    ),
}
"""Problem code, message and hint by the fault of the last reply."""


def _unusable(reading: Reading) -> Problem:
    code, message, hint = UNUSABLE[reading.fault or "form"]
    return Problem(code=code, message=message, hint=hint, detail=reading.complaint)
