"""Sample text_to_sql: queries are executed, and only their rows count."""

import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.samples.conftest import SAMPLES, lines_of, load_module

FOLDER = SAMPLES / "text_to_sql"
RIGHT = "SELECT name FROM shops WHERE staff > 25"


@pytest.fixture(scope="module")
def shop() -> ModuleType:
    return load_module(FOLDER, "shop")


@pytest.fixture
def agent(shop: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setitem(sys.modules, "shop", shop)
    return load_module(FOLDER, "agent")


def scenarios() -> list[dict[str, Any]]:
    names = ("train", "validation")
    return [one for name in names for one in lines_of(FOLDER, f"scenarios/{name}.jsonl")]


def test_every_question_has_rows(shop: ModuleType) -> None:
    for one in scenarios():
        rows = shop.run(one["sql"])
        assert rows
        assert rows != [(None,)]


@pytest.mark.parametrize(
    ("reply", "reward"),
    [
        (RIGHT, 1.0),
        ("select shops.name from shops where not staff <= 25;", 1.0),
        (f"{RIGHT} ORDER BY name DESC", 1.0),
        ("SELECT name FROM shops", 0.3),
        ("SELECT name, staff FROM shops WHERE staff > 25", 0.1),
        ("SELECT staff FROM shops WHERE staff > 25", 0.1),
        ("SELECT name FROM shop", 0.0),
        ("Here is the query: " + RIGHT, 0.0),
        ("", 0.0),
        ("  ", 0.0),
    ],
)
def test_equal_rows_are_correct_for_any_query(agent: ModuleType, reply: str, reward: float) -> None:
    assert agent.judge(RIGHT, reply)["reward"] == reward


def test_queries_cannot_write_and_are_stopped(
    shop: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = shop.run("SELECT * FROM shops")
    monkeypatch.chdir(tmp_path)
    for statement in ("DROP TABLE shops", "DELETE FROM shops", "ATTACH 'x.db' AS x", "PRAGMA a=1"):
        assert shop.run(statement) is None
    assert not list(tmp_path.iterdir())
    assert shop.run("SELECT * FROM shops") == before
    started_at = time.monotonic()
    forever = ", ".join(f"sales s{n}" for n in range(6))
    assert shop.run(f"SELECT COUNT(*) FROM {forever}") is None
    endless = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT MAX(n) FROM t"
    assert shop.run(endless) is None
    assert time.monotonic() - started_at < 10


def test_demonstrated_queries_run_and_questions_are_disjoint(shop: ModuleType) -> None:
    shown = lines_of(FOLDER, "demonstrations.jsonl")
    questions = {one["question"] for one in scenarios()}
    assert not questions & {one["messages"][1]["content"] for one in shown}
    assert all(shop.run(one["messages"][2]["content"]) is not None for one in shown)


def test_data_is_reproducible(tmp_path: Path) -> None:
    folder = tmp_path / "sample"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("scenarios", "*.jsonl"))
    subprocess.run([sys.executable, "make_data.py"], cwd=folder, check=True)
    for name in ("scenarios/train.jsonl", "scenarios/validation.jsonl", "demonstrations.jsonl"):
        assert (folder / name).read_bytes() == (FOLDER / name).read_bytes()
