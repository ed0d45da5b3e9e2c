"""What a run is called in lists."""

import pytest

from engine.protocol.records.runs import RunSummary
from studio.store.runs.state import RunState
from studio.store.runs.status_words import empty_words, run_words, state_words


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("running", "Evaluating, 5 of 24"),
        ("paused", "Evaluation paused at 5 of 24"),
        ("stopped", "Evaluation stopped at 5 of 24"),
        ("failed", "Evaluation failed:"),
        ("finished", "Evaluated 2 models"),
    ],
)
def test_an_evaluation_is_counted_in_attempts(state: str, words: str) -> None:
    run = RunSummary(
        id="r", name="amber-kestrel", kind="evaluation", project="p", project_path="/p", path="/r",
        state=state, step=0, steps=0, started_at=0, changed_at=0, trajectories=5,  # type: ignore[arg-type]
        contestants=["base", "x@2"], attempts=24,
    )  # fmt: skip
    assert run_words(run).text.startswith(words)
    assert state_words(RunState("r", seq=1), run) == run_words(run)


@pytest.mark.parametrize(
    ("life", "words"),
    [
        ("queued", "The run is queued"),
        ("starting", "First point after step 1"),
        ("failed", "This run ended before its first step"),
    ],
)
def test_an_empty_chart_says_when_it_fills(life: str, words: str) -> None:
    assert empty_words(RunState("r", status=life)) == words  # type: ignore[arg-type]
