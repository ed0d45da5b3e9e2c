"""News of runs: told once, and only while they are new."""

import time

from engine.protocol.records.runs import Alert, RunSummary
from studio.services.run_news import News, RunNews
from studio.store.runs.state import RunState

UNSCORED = Alert(condition="unscored > 10 %", words="Unscored trajectories: 12.5 % in step 2.")


def told(*states: RunState) -> list[News]:
    news, found = RunNews(), list[News]()
    news.announced.connect(found.append)
    for state in states:
        summary = RunSummary(
            id="a", name="amber-kestrel", kind="train", project="p", project_path="/p", path="/a",
            state=state.status, step=2, steps=8, started_at=0, changed_at=0,
        )  # fmt: skip
        news.look(summary, state)
    return found


def state(status: str, *alerts: Alert, age_s: float = 0.0) -> RunState:
    made = RunState("a", alerts=list(alerts))
    made.status, made.at = status, time.time() - age_s  # type: ignore[assignment]
    return made


def test_alert_is_told_once_until_it_is_raised_again() -> None:
    running, raised = state("running"), state("running", UNSCORED)
    found = told(running, raised, raised, running, raised)
    assert [one.words for one in found] == [UNSCORED.words] * 2
    assert found[0].kind == "alert"


def test_end_and_review_are_told_but_not_every_step() -> None:
    found = told(state("running"), state("running"), state("reviewing"), state("failed"))
    assert [one.line() for one in found] == [
        "amber-kestrel: step 3 waits for your review.",
        "amber-kestrel: failed: unknown problem, step 2.",
    ]


def test_replayed_history_is_not_news() -> None:
    assert told(state("running", UNSCORED, age_s=60), state("finished", age_s=60)) == []
