"""Text of sweeps on a terminal: plan, lines about runs, and the table."""

from pathlib import Path
from typing import Any

from engine.cli.sweep_text import closing_text, plan_text, run_text, table_text
from engine.protocol.config.project import ProjectConfig
from engine.protocol.problems import Problem
from engine.protocol.records.sweeps import SweepView
from engine.training.sweep.plan import plan_of
from engine.training.sweep.view import view_of
from tests.engine.training.sweep.test_results import record, run

FOLDER = Path("/projects/hello/sweeps/x")


def view(*trials: Any, **changes: Any) -> SweepView:
    made = record(*trials, seeds=2)
    made = made.model_copy(update={"state": "finished", **changes})
    return view_of(made, FOLDER)


def test_plan_names_size_values_pruning_and_budget() -> None:
    settings: dict[str, Any] = {"train": {"steps": 12, "validate_every": 3}}
    parameters = {
        "train.lr": {"low": 1e-5, "high": 1e-3, "log": True},
        "model.rank": {"low": 4, "high": 16, "step": 4},
    }
    sweep = {"parameters": parameters, "trials": 6, "seeds": 2, "budget_hours": 8, "budget_usd": 10}
    config = ProjectConfig.model_validate({**settings, "sweep": sweep})
    assert plan_text(plan_of(config, settings), "hello").splitlines() == [
        "Sweep of hello: 6 trials × 2 seeds = 12 runs, 144 steps at most",
        "  method  tpe",
        "  result  best validation reward, mean over seeds",
        "  varies  train.lr: 1e-05 to 0.001 (logarithmic)",
        "  varies  model.rank: 4 to 16 in steps of 4",
        "  pruning successive halving, keeps the best 1/3 after steps 3, 9",
        "  budget  8 hours, 10 US dollars",
    ]


def test_plan_says_where_pruning_can_do_nothing() -> None:
    settings = {"train": {"steps": 12, "validate_every": 0}}
    sweep = {"parameters": {"train.lr": [0.1, 0.2]}}
    config = ProjectConfig.model_validate({**settings, "sweep": sweep})
    text = plan_text(plan_of(config, settings), "hello")
    assert "pruning none: there is no validation before the last step" in text


def test_table_has_the_best_trial_first_and_invalid_results_are_no_zeros() -> None:
    failed = run(0, "failed").model_copy(
        update={"problem": Problem(code="x.y", message="No.", hint="Try.")}
    )
    found = view(
        [run(0, "finished", 0.2, 0.3, 0.3), run(1, "finished", 0.1, 0.1, 0.3)],
        [run(0, "pruned", 0.1), run(1)],
        [failed, run(1)],
        [run(0, "finished", 0.2, 0.5, 0.5), run(1, "finished", 0.1, 0.5, 0.5)],
    )
    lines = table_text(found).splitlines()
    assert lines[0].split() == [
        *("trial", "lr", "result", "95", "%", "interval", "seed", "0", "seed", "1"),
        *("steps", "state"),
    ]
    assert [line.split()[0] for line in lines[1:]] == ["4", "1", "2", "3"]
    assert lines[4].split() == ["3", "3", "–", "–", "–", "0/12", "failed"]
    assert "Pruning saved 10 of 48 steps (21 %)." in closing_text(found)
    assert "Best: trial 4, 0.50" in closing_text(found)
    texts = [run_text(found, trial, trial.runs[0]) for trial in found.trials]
    assert (
        texts[1] == "trial 2 of 4 · train.lr 2 · seed 0: pruned after step 2, 0.10 (0.00 to 0.20)"
    )
    assert texts[2] == "trial 3 of 4 · train.lr 3 · seed 0: failed. No. Try."


def test_unfinished_sweep_says_how_to_resume() -> None:
    problem = Problem(code="sweep.budget", message="The budget of 1 US dollars is used up.")
    text = closing_text(view([run(0), run(1)], state="stopped", problem=problem))
    assert "Stopped: The budget of 1 US dollars is used up." in text
    assert "Resume with: atelier sweep /projects/hello --resume amber-fox" in text
