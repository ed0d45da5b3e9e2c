"""Judge verdicts of simulated trajectories and the provider calls behind them."""

import json
import random

from engine.protocol.problems import Problem
from engine.protocol.records.judging import Call, Quote, Usage, Verdict, version_of
from engine.protocol.records.runs import RunSpec, TrajectorySummary

JUDGE = "openai/o4-mini"
REASONS = (
    "Gives the flight, the time and the person, each with its email. No wasted step.",
    "Right person, but reports a time that differs from the itinerary and takes one more search "
    "than needed.",
    "Answers the first half only. Never looks for who is meeting her.",
    "Repeats one failing call, then gives up although the email was in the first results.",
)
SILENT = Problem(code="judge.refused", message="The judge gave no score for it.")


def verdicts_of(spec: RunSpec, row: TrajectorySummary, siblings: int) -> list[Verdict]:
    """Return one verdict; a rollout that failed by itself has none."""
    if "ruler" not in (row.unlabelled.parts if row.unlabelled else row.parts):
        return []
    parts = row.unlabelled.parts if row.unlabelled else row.parts
    dice, score = random.Random(f"{row.id} judged"), parts["ruler"]
    level = min(3, int((1 - score) * 4))
    passes = [round(score - 0.02, 3), round(score + 0.02, 3)]
    return [
        Verdict(
            trajectory_id=row.id,
            judge=JUDGE,
            rubric=version_of(spec.rubric),
            score=score,
            reason=REASONS[level],
            criteria={
                "right answer": round(max(0.0, score - 0.1), 2),
                "cites the email": round(dice.uniform(0.5, 1), 2),
                "admits not finding it": 1.0,
                "few, useful steps": round(dice.uniform(0.3, 0.9), 2),
            },
            quotes=[
                Quote(text="TP 1041 was moved on 12 May", found=True),
                Quote(text="no email supports 15:10", found=False),
            ],
            passes=passes,
            calls=[call_key(row, number) for number in range(len(passes))],
            stability=0.86,
        )
    ][: 1 if siblings else 0]


def call_key(row: TrajectorySummary, number: int) -> str:
    return f"{row.step:04}-{row.group:02}-{number}"


def call_of(spec: RunSpec, key: str) -> Call:
    """Return the provider call as the engine stores it."""
    reply = {"attempts": [{"id": "t6", "score": 0.8, "quotes": ["TP 1041 was moved on 12 May"]}]}
    return Call(
        key=key,
        judge=JUDGE,
        rubric=version_of(spec.rubric),
        messages=[
            {"role": "system", "content": spec.rubric},
            {"role": "user", "content": "<attempt id='t6'>\n[assistant]\n" + "word " * 900},
        ],
        reply=json.dumps(reply, indent=1),
        usage=Usage(prompt_tokens=1904, completion_tokens=212, cost_usd=0.0062),
        seconds=2.4,
        at=spec.started_at,
    )
