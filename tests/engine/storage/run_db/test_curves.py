"""Per-scenario curves in SQL against the same statistics computed by hand."""

import json
import random
import statistics
from collections import defaultdict
from pathlib import Path

import pytest

from engine.cli.parser import parse
from engine.protocol.records.curves import CurveQuery, ScenarioCurve
from engine.protocol.records.runs import Scenario
from engine.storage.run_db.reader import RunReader
from engine.training.step.curriculum import Visit, scenario_weights
from tests.engine.storage.kept_runs import make_run
from tests.engine.storage.run_db.test_store import trajectory, write

NAMES = ("always", "never", "learned", "forgotten", "unscored", "mixed")
VISITS = 7


def rewards(name: str, visit: int, rng: random.Random) -> list[float | None]:
    """Rewards of the four rollouts of one visit."""
    if name == "mixed":
        return [rng.choice([None, 0.0, 1.0]) for _ in range(4)]
    value = {
        "always": 1.0,
        "never": 0.0,
        "learned": float(visit >= 4),
        "forgotten": float(visit < 3),
        "unscored": None,
    }[name]
    return [value] * 4


def make(file: Path, low: float = 0.0, high: float = 1.0) -> dict[str, list[list[float]]]:
    """Write a run.db; returns the scored rewards of each visit, by scenario."""
    rng, rewards_by_scenario, rows = random.Random(1), defaultdict(list), []
    for visit in range(VISITS):
        for index, name in enumerate(NAMES):
            raw_rewards = rewards(name, visit, rng)
            scaled_rewards = [None if r is None else low + (high - low) * r for r in raw_rewards]
            rewards_by_scenario[name].append([r for r in scaled_rewards if r is not None])
            rows += [
                trajectory(len(rows) + i, reward).model_copy(
                    update={"step": visit + 1, "group": index, "index": i, "scenario_id": name}
                )
                for i, reward in enumerate(scaled_rewards)
            ]
    write(file, *rows)
    return rewards_by_scenario


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.0, 5.0)])
def test_curves_match_hand_computed_statistics(tmp_path: Path, low: float, high: float) -> None:
    rewards_by_scenario = make(tmp_path / "run.db", low, high)
    reader = RunReader(tmp_path / "run.db")
    page = reader.curves(CurveQuery())
    reader.close()
    assert page.total == len(page.items) == len(NAMES)
    assert page.solved_at == (low + high) / 2
    hard = difficulties(rewards_by_scenario)
    for one in page.items:
        visits = [(n + 1, own) for n, own in enumerate(rewards_by_scenario[one.scenario_id]) if own]
        assert (one.visits, one.attempts, one.last_step) == (VISITS, 4 * VISITS, VISITS)
        assert one.unscored == 4 * VISITS - sum(len(own) for _, own in visits)
        if not visits:
            undefined = (
                one.mean,
                one.early,
                one.late,
                one.gain,
                one.lost,
                one.spread,
                one.difficulty,
            )
            assert undefined == (None,) * 7
            assert one.curve == []
            continue
        third = (len(visits) + 2) // 3
        early, late = share(visits[:third], page.solved_at), share(visits[-third:], page.solved_at)
        assert one.mean == pytest.approx(statistics.fmean(r for _, own in visits for r in own))
        assert (one.early, one.late) == pytest.approx((early, late))
        assert one.gain == pytest.approx(late - early)
        middle = visits[third:-third]
        best = max(early, late, share(middle, page.solved_at) if middle else 0.0)
        assert one.lost == pytest.approx(best - late)
        assert one.spread == pytest.approx(
            statistics.fmean(statistics.pstdev(own) for _, own in visits)
        )
        assert one.difficulty == pytest.approx(hard[one.scenario_id])
        expected = [(step, statistics.fmean(own)) for step, own in visits]
        assert one.curve == [pytest.approx(point) for point in expected]


def share(visits: list[tuple[int, list[float]]], threshold: float) -> float:
    solved = [reward >= threshold for _, own in visits for reward in own]
    return sum(solved) / len(solved)


def difficulties(rewards_by_scenario: dict[str, list[list[float]]]) -> dict[str, float]:
    """Difficulty by the curriculum `hard` over the same visits: its weights, unnormalised."""
    scenarios = [Scenario(id=name, title="", data={}) for name in [*rewards_by_scenario, "unseen"]]
    visits = [
        Visit(n, name, tuple(own))
        for name, all in rewards_by_scenario.items()
        for n, own in enumerate(all)
    ]
    visits.sort(key=lambda visit: visit.step)
    weights = scenario_weights("hard", scenarios, visits, 0.0, 0.0)
    return {
        one.id: 0.5 * weight / weights[-1] for one, weight in zip(scenarios, weights, strict=True)
    }


@pytest.mark.parametrize(
    ("sort", "first"),
    [("difficulty", "forgotten"), ("gain", "learned"), ("lost", "forgotten"), ("mean", "always")],
)
def test_curves_are_sorted_with_unscored_scenarios_last(
    tmp_path: Path, sort: str, first: str
) -> None:
    make(tmp_path / "run.db")
    reader = RunReader(tmp_path / "run.db")
    page = reader.curves(CurveQuery(sort=sort))  # type: ignore[arg-type]
    assert (page.items[0].scenario_id, page.items[-1].scenario_id) == (first, "unscored")
    second = reader.curves(CurveQuery(sort=sort, offset=1, limit=2))  # type: ignore[arg-type]
    assert (second.total, second.items) == (page.total, page.items[1:3])
    page_ = reader.curves(CurveQuery(search="LEARN"))
    assert [one.scenario_id for one in page_.items] == ["learned"]
    assert reader.curves(CurveQuery(split="validation")).items == []
    reader.close()


def test_long_curve_is_downsampled(tmp_path: Path) -> None:
    rows = [
        trajectory(n, n / 400).model_copy(
            update={"step": n + 1, "group": 0, "index": 0, "scenario_id": "s"}
        )
        for n in range(400)
    ]
    write(tmp_path / "run.db", *rows)
    reader = RunReader(tmp_path / "run.db")
    (one,) = reader.curves(CurveQuery()).items
    reader.close()
    assert 40 <= len(one.curve) <= 48
    assert one.curve == sorted(one.curve)
    assert one.visits == 400


def test_cli_scenarios_lists_curves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = make_run(tmp_path, "letters", {})
    folder = tmp_path / "runs" / spec.id
    make(folder / "run.db")
    arguments = parse(["scenarios", str(folder), "--sort", "forgotten", "--json"])
    assert arguments.command(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    first = ScenarioCurve.model_validate(json.loads(lines[0]))
    assert (first.scenario_id, first.lost) == ("forgotten", 1.0)
    arguments = parse(["scenarios", str(folder), "--sort", "improved", "--limit", "1"])
    assert arguments.command(arguments) == 0
    output = capsys.readouterr().out
    assert "6 scenarios, 1 shown; solved: reward ≥ 0.5" in output
    assert "+100 %" in output
    arguments = parse(["scenarios", str(tmp_path)])
    assert arguments.command(arguments) == 1
