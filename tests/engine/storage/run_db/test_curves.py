"""Per-scenario curves: what SQL counts is what one would count by hand, whatever the rewards."""

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


def rewards(name: str, visit: int, chance: random.Random) -> list[float | None]:
    """Of the four attempts of one visit."""
    if name == "mixed":
        return [chance.choice([None, 0.0, 1.0]) for _ in range(4)]
    value = {
        "always": 1.0,
        "never": 0.0,
        "learned": float(visit >= 4),
        "forgotten": float(visit < 3),
        "unscored": None,
    }[name]
    return [value] * 4


def make(file: Path, low: float = 0.0, high: float = 1.0) -> dict[str, list[list[float]]]:
    """A run.db; returns the scored rewards of each visit, by scenario."""
    chance, known, rows = random.Random(1), defaultdict(list), []
    for visit in range(VISITS):
        for place, name in enumerate(NAMES):
            drawn = rewards(name, visit, chance)
            given = [None if r is None else low + (high - low) * r for r in drawn]
            known[name].append([r for r in given if r is not None])
            rows += [
                trajectory(len(rows) + i, reward).model_copy(
                    update={"step": visit + 1, "group": place, "index": i, "scenario_id": name}
                )
                for i, reward in enumerate(given)
            ]
    write(file, *rows)
    return known


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.0, 5.0)])
def test_everything_is_counted_as_by_hand(tmp_path: Path, low: float, high: float) -> None:
    known = make(tmp_path / "run.db", low, high)
    reader = RunReader(tmp_path / "run.db")
    page = reader.curves(CurveQuery())
    reader.close()
    assert page.total == len(page.items) == len(NAMES)
    assert page.solved_at == (low + high) / 2
    hard = difficulties(known)
    for one in page.items:
        visits = [(n + 1, own) for n, own in enumerate(known[one.scenario_id]) if own]
        assert (one.visits, one.attempts, one.last_step) == (VISITS, 4 * VISITS, VISITS)
        assert one.unscored == 4 * VISITS - sum(len(own) for _, own in visits)
        if not visits:
            told = (one.mean, one.early, one.late, one.gain, one.lost, one.spread, one.difficulty)
            assert told == (None,) * 7
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


def share(visits: list[tuple[int, list[float]]], bar: float) -> float:
    attempts = [reward >= bar for _, own in visits for reward in own]
    return sum(attempts) / len(attempts)


def difficulties(known: dict[str, list[list[float]]]) -> dict[str, float]:
    """By what the curriculum `hard` makes of the same visits: weights up to their sum."""
    scenarios = [Scenario(id=name, title="", data={}) for name in [*known, "unseen"]]
    visits = [
        Visit(n, name, tuple(own)) for name, all in known.items() for n, own in enumerate(all)
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
def test_it_is_sorted_with_the_unknown_last(tmp_path: Path, sort: str, first: str) -> None:
    make(tmp_path / "run.db")
    reader = RunReader(tmp_path / "run.db")
    page = reader.curves(CurveQuery(sort=sort))  # type: ignore[arg-type]
    assert (page.items[0].scenario_id, page.items[-1].scenario_id) == (first, "unscored")
    second = reader.curves(CurveQuery(sort=sort, offset=1, limit=2))  # type: ignore[arg-type]
    assert (second.total, second.items) == (page.total, page.items[1:3])
    found = reader.curves(CurveQuery(search="LEARN"))
    assert [one.scenario_id for one in found.items] == ["learned"]
    assert reader.curves(CurveQuery(split="validation")).items == []
    reader.close()


def test_a_long_curve_is_thinned(tmp_path: Path) -> None:
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


def test_the_terminal_lists_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    said = capsys.readouterr().out
    assert "6 scenarios, 1 shown; solved is a reward ≥ 0.5" in said
    assert "+100 %" in said
    arguments = parse(["scenarios", str(tmp_path)])
    assert arguments.command(arguments) == 1
