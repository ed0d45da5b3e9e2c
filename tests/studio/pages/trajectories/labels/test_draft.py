"""Label draft: entries awaiting Enter and the label built from them, without a window."""

import pytest
from PySide6.QtWidgets import QApplication

from engine.protocol.records.labels import Label, LabelPreview, Outcome, Word
from engine.protocol.records.runs import TrajectorySummary
from studio.pages.trajectories.labels import wording
from studio.pages.trajectories.labels.draft import Draft, score_of
from studio.theme.theme import Theme
from studio.widgets.tables.label_chips import LabelChip, fitted


def trajectory(number: int, reward: float | None = 0.5) -> TrajectorySummary:
    return TrajectorySummary(
        id=f"t{number}", split="train", step=3, group=0, index=number - 1, scenario_id="s",
        title="t", reward=reward,
    )  # fmt: skip


FOUR = [trajectory(number) for number in range(1, 5)]
NUMBERS = {one.id: one.index + 1 for one in FOUR}


def label(*words: Word, **fields: object) -> Label:
    return Label.model_validate({"id": "l", "step": 3, "group": 0, "words": words, **fields})


@pytest.mark.parametrize(
    ("typed", "value"),
    [("85", 0.85), ("1", 1.0), ("0", 0.0), ("0.4", 0.4), (",5", 0.5), ("05", 0.05), ("10", 0.1),
     ("", None), ("x", None), ("1.5", None), ("-1", None), ("nan", None), ("٣", None)],
)  # fmt: skip
def test_typed_digits_are_a_score(typed: str, value: float | None) -> None:
    assert score_of(typed) == value


def test_best_and_worst_replace_each_other() -> None:
    draft = Draft().as_best("t1").as_worst("t1")
    assert (draft.best, draft.worst) == ((), "t1")
    assert not draft.as_worst("t1")
    assert Draft().as_best("t1").as_best("t2").best == ("t2",)
    assert Draft().ranked(["t1", "t2"]).as_best("t1").order == ()


def test_tie_does_not_order_the_others() -> None:
    draft = Draft().as_best("t1").tied("t3")
    words = draft.words([*FOUR[:3], trajectory(4, None)])
    assert [word.order for word in words] == [(("t1", "t3"), ("t2",))], "unscored ones are left out"
    tie_label = label(*draft.words(FOUR))
    assert wording.kinds_in(tie_label, "t3") == ["tie"]
    assert wording.kinds_in(tie_label, "t2") == []
    assert wording.gist(tie_label, NUMBERS) == "1 and 3 tied for best"


def test_label_words_are_in_order_of_application() -> None:
    draft = Draft().marked("t2", "gold").as_best("t1").scored("t3", 0.4).noted("t2", " why ")
    kinds = [word.kind for word in draft.words(FOUR)]
    assert kinds == ["score", "best", "gold", "note"]
    assert draft.noted("t2", " ").notes == {}


def outcome(number: int, before: float | None, after: float | None) -> Outcome:
    return Outcome(
        trajectory_id=f"t{number}", index=number - 1, reward=0.5, advantage=before,
        new_reward=0.5, new_advantage=after,
    )  # fmt: skip


def test_preview_sentence() -> None:
    outcomes = [outcome(1, 0.1, 0.2), outcome(2, 0.0, 0.001), outcome(3, None, 0.1)]
    now = LabelPreview(outcomes=outcomes, enters="this step")
    best = label(Word(kind="best", trajectory_id="t1"))
    text = wording.sentence(best, now, closed=2)
    assert text == "Advantages change for 2 of 3 trajectories. Applies to step 3."
    late = now.model_copy(update={"enters": "no step", "mapped": 12})
    assert "Step 3 is complete" in wording.sentence(best, late, closed=5)
    assert "12 scores" in wording.sentence(best, late, closed=5)
    again = now.model_copy(update={"enters": "the next step"})
    assert "The group is trained again in step 6." in wording.sentence(best, again, closed=5)
    only = label(Word(kind="flag", trajectory_id="t1"), effect="none")
    assert wording.sentence(only, now, closed=2).startswith("Agreement only")
    assert (
        wording.done(best, NUMBERS, 2, 4)
        == "1 labelled best. Advantages changed for 2 of 4 trajectories."
    )


def test_chips_distinguish_stored_from_pending() -> None:
    stored = label(Word(kind="score", trajectory_id="t1", value=0.85), seq=4)
    undone = label(Word(kind="veto", trajectory_id="t1"), seq=5, undone=6)
    chips = wording.chips_of(FOUR[0], [stored, undone], Draft().marked("t1", "exclude"))
    assert [(chip.words, chip.pending) for chip in chips] == [("you: 0.85", False),
                                                               ("excluded", True)]  # fmt: skip
    assert wording.excluded(chips)


def test_chips_keep_icons_when_text_does_not_fit(qapp: QApplication) -> None:
    Theme.install(qapp, "dark")
    chips = [
        LabelChip("best", "star"),
        LabelChip("gold", "star"),
        LabelChip("flag", "flag", pending=True),
    ]
    assert [spoken for _, _, spoken in fitted(chips, 300)] == [True] * 3
    narrow = fitted(chips, 100)
    assert [chip.words for chip, _, _ in narrow] == ["best", "gold", "flag"]
    assert narrow[2][2], "a pending chip keeps its text"
    assert not narrow[0][2]
