"""Sample email_search: deterministic inbox, questions with one answer, rewards."""

import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.samples.conftest import SAMPLES, lines_of, load_module

FOLDER = SAMPLES / "email_search"
SCENARIO = {"question": "?", "answer": "13:35", "mail": 7}


@pytest.fixture(scope="module")
def sample_copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy of the sample, so that its own folder is not changed."""
    folder = tmp_path_factory.mktemp("sample") / "email_search"
    shutil.copytree(FOLDER, folder)
    return folder


@pytest.fixture(scope="module")
def inbox_module(sample_copy: Path) -> ModuleType:
    return load_module(sample_copy, "inbox")


@pytest.fixture(scope="module")
def database(inbox_module: ModuleType) -> Iterator[sqlite3.Connection]:
    opened = inbox_module.inbox()
    yield opened
    opened.close()


@pytest.fixture
def agent(
    inbox_module: ModuleType, sample_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> ModuleType:
    monkeypatch.setitem(sys.modules, "inbox", inbox_module)
    return load_module(sample_copy, "agent")


def questions() -> list[dict[str, Any]]:
    return [
        one
        for split in ("train", "validation")
        for one in lines_of(FOLDER, f"scenarios/{split}.jsonl")
    ]


def test_inbox_is_created_once_with_3200_mails(
    inbox_module: ModuleType, database: sqlite3.Connection
) -> None:
    assert database.execute("SELECT count(*) FROM mails").fetchone() == (3200,)
    assert inbox_module.mails() == inbox_module.mails()
    before = inbox_module.FILE.stat().st_mtime_ns
    inbox_module.inbox().close()
    assert inbox_module.FILE.stat().st_mtime_ns == before


def test_every_question_has_its_answer_in_one_mail(
    inbox_module: ModuleType, database: sqlite3.Connection
) -> None:
    all_questions = questions()
    assert len({one["question"] for one in all_questions}) == len(all_questions)
    for one in all_questions:
        _, _, _, body = inbox_module.read(database, one["mail"])
        assert one["answer"] in body


def test_search_ranks_mails_and_handles_any_query(
    inbox_module: ModuleType, database: sqlite3.Connection
) -> None:
    one = questions()[0]
    results = inbox_module.search(database, one["question"])
    assert one["mail"] in [number for number, _ in results]
    assert len(results) == inbox_module.SHOWN
    for words in ("", '"', "*", "…", "zzzzqqq"):
        assert inbox_module.search(database, words) == []
    for words in ("NEAR(", "a' OR 1=1 --", "subject:x", "AND", "invoice -"):
        assert len(inbox_module.search(database, words)) <= inbox_module.SHOWN
    assert inbox_module.read(database, 0) is None


@pytest.mark.parametrize(
    ("reply", "right"),
    [
        ("13:35", True),
        ("At 13:35.", True),
        ("It leaves at 13:35", True),
        ("It leaves at 13:35 from A2", False),
        ("13:35 or 14:20", False),
        ("13:35 kiosk", False),
        ("3:35", False),
        ("113:35", False),
        ("13:355", False),
        ("", False),
        ("one two three four five six seven eight nine ten eleven twelve 13:35", False),
    ],
)
def test_short_correct_answer_is_accepted(
    inbox_module: ModuleType, reply: str, right: bool
) -> None:
    assert inbox_module.is_right(reply, "13:35") is right


def test_copied_mail_is_not_an_answer(
    inbox_module: ModuleType, database: sqlite3.Connection
) -> None:
    """Neither a part of it with both facts, nor a list of all possible answers."""
    for one in questions():
        _, _, _, body = inbox_module.read(database, one["mail"])
        assert not inbox_module.is_right(body, one["answer"])
    assert inbox_module.is_right("in room 214", "214")
    assert not inbox_module.is_right("at 9:30 in room 214", "214")
    assert not inbox_module.is_right("at the market. The code is 2140", "market")
    assert not inbox_module.is_right("42 euros. Please pay by 5 March", "5 March")
    assert not inbox_module.is_right(" ".join(inbox_module.PLACES), "kiosk")


def test_concurrent_first_calls_create_one_inbox(sample_copy: Path, tmp_path: Path) -> None:
    shutil.copy(sample_copy / "inbox.py", tmp_path)
    fresh = load_module(tmp_path, "inbox")

    def count(_: int) -> int:
        opened = fresh.inbox()
        try:
            return int(opened.execute("SELECT count(*) FROM mails").fetchone()[0])
        finally:
            opened.close()

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(count, range(8))) == {3200}
    assert [file.name for file in tmp_path.iterdir() if "inbox-" in file.name] == []


def test_reward_counts_finding_and_reading_the_mail(agent: ModuleType) -> None:
    def reward(reply: str, listed: list[int], opened: list[int]) -> float:
        return float(agent.judge(SCENARIO, reply, {"listed": listed, "read": opened})["reward"])

    assert reward("13:35", [7], [7]) == 1.0
    assert reward("9:00", [7], [7]) == agent.READ
    assert reward("9:00", [7], [8]) == agent.LISTED
    assert reward("9:00", [8], []) == 0.0
    assert reward("13:35", [7], []) == agent.LISTED  # guessed without reading
    assert 0 < agent.LISTED < agent.READ < 1


def test_tools_handle_any_arguments(agent: ModuleType, database: sqlite3.Connection) -> None:
    def call(name: str, arguments: str) -> str:
        seen: dict[str, list[int]] = {"listed": [], "read": []}
        return str(agent.run(database, SimpleNamespace(name=name, arguments=arguments), seen))

    assert ": " in call("search_inbox", '{"words": "invoice"}')
    assert call("read_mail", '{"id": 999999}') == "There is no mail 999999."
    assert call("burn", "{}") == "There is no tool burn."
    for arguments in ("", "[]", "{", '{"id": "x"}', '{"id": null}', "7"):
        assert call("read_mail", arguments) == "That cannot be read."


def test_data_is_reproducible(tmp_path: Path) -> None:
    folder = tmp_path / "sample"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("scenarios", "*.jsonl", "*.db"))
    subprocess.run([sys.executable, "make_data.py"], cwd=folder, check=True)
    for name in ("scenarios/train.jsonl", "scenarios/validation.jsonl", "demonstrations.jsonl"):
        assert (folder / name).read_bytes() == (FOLDER / name).read_bytes()


def test_demonstrated_clerk_is_mediocre() -> None:
    questions_by_text = {one["question"]: one for one in questions()}
    shown = lines_of(FOLDER, "demonstrations.jsonl")
    assert not questions_by_text.keys() & {one["messages"][1]["content"] for one in shown}
    hits = 0
    for one in shown:
        called = one["messages"][4]["tool_calls"][0]["function"]["arguments"]
        hits += one["messages"][3]["content"].startswith(f"{json.loads(called)['id']}:")
    assert 0.6 < hits / len(shown) < 0.95
