"""What was sampled for a script and is not handed in yet."""

import asyncio
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from engine.integrations.scripts import completions
from engine.integrations.scripts.completions import KEPT_UPDATES, Completion, Completions
from engine.protocol.problems import StoreError


def answer(name: str, parent: str = "", version: int = 0, size: int = 2) -> Completion:
    return Completion(
        id=name,
        parent=parent,
        version=version,
        prompt=[1, 2],
        sampled=[ord(name[0])] * size,
        logprobs=[-0.1 * len(name)] * size,
        digest=f"said {name}",
        raw=name,
        text=f"<{name}>",
        temperature=1.0,
        top_p=1.0,
        truncated=False,
    )


def test_one_that_goes_on_holds_all_before_it(tmp_path: Path) -> None:
    known = Completions(tmp_path / "known.jsonl")
    for one in (answer("a"), answer("b", "a"), answer("c", "b")):
        known.add(one)
    whole = known.held.whole(answer("c", "b"))
    assert whole.tokens == [1, 2, 97, 97, 1, 2, 98, 98, 1, 2, 99, 99]
    assert (whole.start, whole.text) == (10, "<a><b><c>")
    found = known.held.after("said b")
    assert found is not None
    assert found.id == "b"
    assert known.held.sampled_as(["token_id:97"] * 2, [-0.1, -0.1]) == answer("a")
    assert known.held.sampled_as(["token_id:97"] * 2, [-0.1, -0.2]) is None


def test_another_engine_knows_them_and_a_torn_line_was_never_answered(tmp_path: Path) -> None:
    file = tmp_path / "known.jsonl"
    known = Completions(file)
    known.add(answer("a"))
    known.add(answer("b", "a"))
    with file.open("a") as torn:
        torn.write('{"id": "c", "par')
    again = Completions(file)
    assert len(again) == 2
    again.add(answer("d"))
    assert len(Completions(file)) == 3
    file.write_text("{}\n{}\n")
    with pytest.raises(StoreError, match="cannot be read"):
        Completions(file)


def test_what_is_never_handed_in_is_forgotten_with_what_only_it_needs(tmp_path: Path) -> None:
    known = Completions(tmp_path / "known.jsonl")
    for one in (answer("a"), answer("b", "a", 3), answer("c"), answer("d", "c")):
        known.add(one)
    known.forget_before(KEPT_UPDATES)
    assert len(known) == 4
    known.forget_before(KEPT_UPDATES + 1)
    assert [known.held.get(name) is not None for name in "abcd"] == [True, True, False, False]
    assert len(Completions(tmp_path / "known.jsonl")) == 2


def test_too_many_push_out_the_oldest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completions, "MOST_TOKENS", 40)
    known = Completions(tmp_path / "known.jsonl")
    for number in range(20):
        known.add(answer(f"{chr(97 + number)}{number}"))
    assert len(known) <= 10
    assert known.held.get("t19") is not None
    assert known.held.get("a0") is None


def test_forgetting_adds_a_line_and_rewrites_nothing(tmp_path: Path) -> None:
    file = tmp_path / "known.jsonl"
    known = Completions(file)
    for one in (answer("a"), answer("b", "a", 3), answer("c"), answer("d", "c")):
        known.add(one)
    before = file.read_bytes()
    known.forget_before(KEPT_UPDATES + 1)
    after = file.read_bytes()
    assert after.startswith(before)
    assert after[len(before) :] == b'{"forgotten":["c","d"]}\n'
    known.add(answer("e", "b", 4))
    assert names(Completions(file)) == names(known) == ["a", "b", "e"]
    file.write_bytes(after + b'{"forgotten":["nobody"]}\n')
    with pytest.raises(StoreError, match="cannot be read"):
        Completions(file)


def test_a_thread_reads_on_in_what_is_forgotten_meanwhile(tmp_path: Path) -> None:
    known = Completions(tmp_path / "known.jsonl")
    for one in (answer("a"), answer("b", "a")):
        known.add(one)
    held, child = known.held, answer("b", "a")
    known.forget_before(KEPT_UPDATES + 1)
    assert len(known) == 0
    assert held.whole(child).text == "<a><b>"


def names(known: Completions) -> list[str]:
    return [name for name in "abcdefgh" if known.held.get(name)]


class Gate:
    """Writes the file anew when it may; whoever waits for that sees that it has begun."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.opened = threading.Event(), threading.Event()
        self._write = completions.write_lines
        monkeypatch.setattr(completions, "write_lines", self)
        monkeypatch.setattr(completions, "LEAST_SPENT", 0)

    def __call__(self, file: Path, kept: Iterable[Completion]) -> None:
        self.begun.set()
        assert self.opened.wait(20)
        self._write(file, kept)


def half_forgotten(file: Path) -> Completions:
    known = Completions(file)
    for one in (answer("a"), answer("b"), answer("c"), answer("d", version=3), answer("e", "d", 4)):
        known.add(one)
    known.forget_before(KEPT_UPDATES + 1)
    return known


def test_a_file_of_forgotten_ones_is_written_anew_while_more_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        compacting = asyncio.create_task(known.compact())
        await asyncio.to_thread(gate.begun.wait, 20)
        known.add(answer("f", "e", 5))
        known.forget_before(KEPT_UPDATES + 5)
        known.add(answer("g", version=9))
        gate.opened.set()
        await compacting

    file = tmp_path / "known.jsonl"
    gate, known = Gate(monkeypatch), half_forgotten(file)
    asyncio.run(work())
    assert names(known) == names(Completions(file)) == ["d", "e", "f", "g"]
    assert b'"id":"a"' not in file.read_bytes()
    assert [one.name for one in tmp_path.iterdir()] == ["known.jsonl"]
    known.add(answer("h", "g", 9))
    assert names(Completions(file)) == ["d", "e", "f", "g", "h"]
    size = file.stat().st_size
    asyncio.run(known.compact())  # nothing in it is forgotten now
    assert file.stat().st_size == size


def test_writing_anew_that_is_cut_off_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        compacting = asyncio.create_task(known.compact())
        await asyncio.to_thread(gate.begun.wait, 20)
        compacting.cancel()
        await asyncio.sleep(0)
        known.add(answer("f", "e", 5))
        gate.opened.set()
        with pytest.raises(asyncio.CancelledError):
            await compacting

    file = tmp_path / "known.jsonl"
    gate, known = Gate(monkeypatch), half_forgotten(file)
    before = file.read_bytes()
    asyncio.run(work())
    assert file.read_bytes().startswith(before)
    assert names(Completions(file)) == ["d", "e", "f"]
    assert [one.name for one in tmp_path.iterdir()] == ["known.jsonl"]
