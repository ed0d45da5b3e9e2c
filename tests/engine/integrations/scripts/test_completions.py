"""Store of completions sampled for a script and not yet submitted."""

import asyncio
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from engine.integrations.scripts import completions
from engine.integrations.scripts.completions import (
    KEPT_UPDATES,
    Completion,
    CompletionPart,
    Completions,
)
from engine.protocol.problems import StoreError


def answer(name: str, parent: str = "", version: int = 0, size: int = 2) -> Completion:
    return Completion(
        id=name,
        parent=parent,
        version=version,
        prompt=[1, 2],
        parts=[CompletionPart(sampled=[ord(name[0])] * size, logprobs=[-0.1 * len(name)] * size)],
        digest=f"said {name}",
        reasoning="",
        content=name,
        settings="[[], {}]",
        text=f"<{name}>",
        temperature=1.0,
        top_p=1.0,
        truncated=False,
    )


def test_whole_joins_a_completion_with_its_parents(tmp_path: Path) -> None:
    store = Completions(tmp_path / "known.jsonl")
    for one in (answer("a"), answer("b", "a"), answer("c", "b")):
        store.add(one)
    whole = store.held.whole(answer("c", "b"))
    assert whole.tokens == [1, 2, 97, 97, 1, 2, 98, 98, 1, 2, 99, 99]
    assert (whole.start, whole.text) == (10, "<a><b><c>")
    completion = store.held.after("said b")
    assert completion is not None
    assert completion.id == "b"
    assert store.held.sampled_as(["token_id:97"] * 2, [-0.1, -0.1]) == answer("a")
    assert store.held.sampled_as(["token_id:97"] * 2, [-0.1, -0.2]) is None


def test_completions_are_reloaded_and_a_torn_line_is_ignored(tmp_path: Path) -> None:
    file = tmp_path / "known.jsonl"
    store = Completions(file)
    store.add(answer("a"))
    store.add(answer("b", "a"))
    with file.open("a") as file_end:
        file_end.write('{"id": "c", "par')
    reloaded = Completions(file)
    assert len(reloaded) == 2
    reloaded.add(answer("d"))
    assert len(Completions(file)) == 3
    file.write_text("{}\n{}\n")
    with pytest.raises(StoreError, match="cannot be read"):
        Completions(file)


def test_forget_before_drops_old_completions_and_unneeded_parents(tmp_path: Path) -> None:
    store = Completions(tmp_path / "known.jsonl")
    for one in (answer("a"), answer("b", "a", 3), answer("c"), answer("d", "c")):
        store.add(one)
    store.forget_before(KEPT_UPDATES)
    assert len(store) == 4
    store.forget_before(KEPT_UPDATES + 1)
    assert [store.held.get(name) is not None for name in "abcd"] == [True, True, False, False]
    assert len(Completions(tmp_path / "known.jsonl")) == 2


def test_too_many_tokens_drop_the_oldest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completions, "MOST_TOKENS", 40)
    store = Completions(tmp_path / "known.jsonl")
    for number in range(20):
        store.add(answer(f"{chr(97 + number)}{number}"))
    assert len(store) <= 10
    assert store.held.get("t19") is not None
    assert store.held.get("a0") is None


def test_forgetting_appends_a_line(tmp_path: Path) -> None:
    file = tmp_path / "known.jsonl"
    store = Completions(file)
    for one in (answer("a"), answer("b", "a", 3), answer("c"), answer("d", "c")):
        store.add(one)
    before = file.read_bytes()
    store.forget_before(KEPT_UPDATES + 1)
    after = file.read_bytes()
    assert after.startswith(before)
    assert after[len(before) :] == b'{"forgotten":["c","d"]}\n'
    store.add(answer("e", "b", 4))
    assert names(Completions(file)) == names(store) == ["a", "b", "e"]
    file.write_bytes(after + b'{"forgotten":["nobody"]}\n')
    with pytest.raises(StoreError, match="cannot be read"):
        Completions(file)


def test_snapshot_is_unaffected_by_forgetting(tmp_path: Path) -> None:
    store = Completions(tmp_path / "known.jsonl")
    for one in (answer("a"), answer("b", "a")):
        store.add(one)
    snapshot, child = store.held, answer("b", "a")
    store.forget_before(KEPT_UPDATES + 1)
    assert len(store) == 0
    assert snapshot.whole(child).text == "<a><b>"


def names(store: Completions) -> list[str]:
    return [name for name in "abcdefgh" if store.held.get(name)]


class WriteGate:
    """Block the rewriting of the file until opened, and signal that it has started."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started, self.opened = threading.Event(), threading.Event()
        self._write = completions.write_lines
        monkeypatch.setattr(completions, "write_lines", self)
        monkeypatch.setattr(completions, "LEAST_SPENT", 0)

    def __call__(self, file: Path, completions_: Iterable[Completion]) -> None:
        self.started.set()
        assert self.opened.wait(20)
        self._write(file, completions_)


def partly_forgotten_store(file: Path) -> Completions:
    store = Completions(file)
    for one in (answer("a"), answer("b"), answer("c"), answer("d", version=3), answer("e", "d", 4)):
        store.add(one)
    store.forget_before(KEPT_UPDATES + 1)
    return store


def test_compaction_keeps_completions_added_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        compacting = asyncio.create_task(store.compact())
        await asyncio.to_thread(gate.started.wait, 20)
        store.add(answer("f", "e", 5))
        store.forget_before(KEPT_UPDATES + 5)
        store.add(answer("g", version=9))
        gate.opened.set()
        await compacting

    file = tmp_path / "known.jsonl"
    gate, store = WriteGate(monkeypatch), partly_forgotten_store(file)
    asyncio.run(work())
    assert names(store) == names(Completions(file)) == ["d", "e", "f", "g"]
    assert b'"id":"a"' not in file.read_bytes()
    assert [one.name for one in tmp_path.iterdir()] == ["known.jsonl"]
    store.add(answer("h", "g", 9))
    assert names(Completions(file)) == ["d", "e", "f", "g", "h"]
    size = file.stat().st_size
    asyncio.run(store.compact())  # nothing left to drop
    assert file.stat().st_size == size


def test_cancelled_compaction_keeps_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        compacting = asyncio.create_task(store.compact())
        await asyncio.to_thread(gate.started.wait, 20)
        compacting.cancel()
        await asyncio.sleep(0)
        store.add(answer("f", "e", 5))
        gate.opened.set()
        with pytest.raises(asyncio.CancelledError):
            await compacting

    file = tmp_path / "known.jsonl"
    gate, store = WriteGate(monkeypatch), partly_forgotten_store(file)
    before = file.read_bytes()
    asyncio.run(work())
    assert file.read_bytes().startswith(before)
    assert names(Completions(file)) == ["d", "e", "f"]
    assert [one.name for one in tmp_path.iterdir()] == ["known.jsonl"]
