"""What was sampled for a script and is not handed in yet."""

from pathlib import Path

import pytest

from engine.outside import completions
from engine.outside.completions import KEPT_UPDATES, Completion, Completions
from engine.protocol.problems import StoreError


def answer(name: str, parent: str = "", version: int = 0, size: int = 2) -> Completion:
    return Completion(
        id=name,
        parent=parent,
        version=version,
        prompt=[1, 2],
        sampled=[ord(name[0])] * size,
        logprobs=[-0.1 * len(name)] * size,
        said=f"said {name}",
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
    whole = known.whole(answer("c", "b"))
    assert whole.tokens == [1, 2, 97, 97, 1, 2, 98, 98, 1, 2, 99, 99]
    assert (whole.start, whole.text) == (10, "<a><b><c>")
    found = known.after("said b")
    assert found is not None
    assert found.id == "b"
    assert known.sampled_as(["token_id:97"] * 2, [-0.1, -0.1]) == answer("a")
    assert known.sampled_as(["token_id:97"] * 2, [-0.1, -0.2]) is None


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
    assert [known.get(name) is not None for name in "abcd"] == [True, True, False, False]
    assert len(Completions(tmp_path / "known.jsonl")) == 2


def test_too_many_push_out_the_oldest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completions, "MOST_TOKENS", 40)
    known = Completions(tmp_path / "known.jsonl")
    for number in range(20):
        known.add(answer(f"{chr(97 + number)}{number}"))
    assert len(known) <= 10
    assert known.get("t19") is not None
    assert known.get("a0") is None
