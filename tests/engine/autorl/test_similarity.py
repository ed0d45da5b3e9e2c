"""Near-duplicate detection, and the split into training and validation."""

import random

import pytest

from engine.autorl.similarity import shingles, similarity, split, without_duplicates
from engine.protocol.requests.drafts import DraftScenario


def scenario(text: str, difficulty: int | None = None) -> DraftScenario:
    return DraftScenario(input=text, difficulty=difficulty)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Where is my order 1234?", "where is my order 1234", True),
        ("Please, where is my order now?", "Where is my order now?", True),
        ("Where is my order?", "When will my parcel come?", False),
        ("What is 3 + 4?", "What is 5 + 9?", False),
        ("Hi", "Hi!", True),
        ("Hi", "Ho", False),
        ("…", "?", True),
        ("What is 12 + 7?", "What is 12 * 7?", False),
        ("What is 12 + 7?", "What is 12 - 7?", False),
        ("What is 12 × 7?", "What is 12 ÷ 7?", False),
        ("What is 12 + 7?", "what is 12 + 7", True),
        ("Is x-y > 0?", "Is x/y > 0?", False),
        ("Is 3 == 4 true?", "Is 3 != 4 true?", False),
        ("Is -5 a number?", "Is 5 a number?", False),
        ("A well-known shop - is it open?", "a well known shop, is it open", True),
        ("我的订单在哪里？", "我的订单在哪里", True),
        ("请问我的订单现在在哪里？", "我的订单现在在哪里？", True),
        ("我的订单在哪里？", "你们几点关门？", False),
        ("私の注文はどこですか。", "私の注文はどこですか", True),
        ("すみません、私の注文はどこですか。", "私の注文はどこですか。", True),
        ("私の注文はどこですか。", "何時に閉まりますか。", False),
        ("สินค้าของฉันอยู่ที่ไหน", "ร้านปิดกี่โมง", False),
        ("Donaudampfschifffahrtsgesellschaft", "Donaudampfschifffahrtsgesellschaften", True),
        ("Donaudampfschifffahrt", "Binnenschifffahrtsamt", False),
        ("12345", "12346", False),
    ],
)
def test_similarity_detects_rephrased_scenarios(one: str, other: str, same: bool) -> None:
    assert similarity(shingles(one), shingles(other)) is same


def test_without_duplicates_keeps_the_first() -> None:
    kept = [scenario("Where is my order 1234?")]
    new = [
        scenario("where is my order 1234"),
        scenario("Cancel it, please."),
        scenario("Cancel it please"),
    ]
    assert [one.input for one in without_duplicates(kept, new)] == ["Cancel it, please."]


def test_validation_split_covers_every_difficulty() -> None:
    rng = random.Random(3)
    scenarios = [scenario(f"s{n}", rng.choice([1, 2, 3, 4, 5, None])) for n in range(100)]
    held_out = [one for one in split(scenarios, 0) if one.split == "validation"]
    assert len(held_out) == 20
    counts = [sum(one.difficulty == grade for one in held_out) for grade in (1, 2, 3, 4, 5, None)]
    assert max(counts) - min(counts) <= 1
    assert [one.input for one in split(scenarios, 0)] == [one.input for one in scenarios]
    assert split(scenarios, 0) == split(scenarios, 0) != split(scenarios, 1)


def test_small_set_has_two_validation_scenarios() -> None:
    few = split([scenario(f"{n}") for n in range(8)], 0)
    assert sum(one.split == "validation" for one in few) == 2
    assert split([], 0) == []
