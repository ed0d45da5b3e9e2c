"""Agreement with a person's labels: identical trajectories count once, and ranks them apart not."""

from engine.judge.calibration.measurement import consistency, first_of_identical, merged, repeated
from engine.protocol.records.conversations import Message
from engine.protocol.records.labels import Label, Word
from engine.protocol.records.runs import Trajectory


def rollout(name: str, text: str) -> Trajectory:
    return Trajectory(
        id=name, split="train", step=1, group=0, index=0, scenario_id="s", title="S", reward=None,
        messages=[Message(role="user", content="Hi"), Message(role="assistant", content=text)],
    )  # fmt: skip


def test_identical_trajectories_are_represented_by_the_first() -> None:
    group = [rollout("a", "yes"), rollout("b", "no"), rollout("c", "yes")]
    assert first_of_identical(group) == {"a": "a", "b": "b", "c": "a"}


def test_preferences_between_identical_trajectories_are_left_out() -> None:
    first = {"a": "a", "b": "b", "c": "a"}
    assert merged([("a", "b"), ("c", "b"), ("a", "c")], first) == [("a", "b")]


def test_contradicting_ranks_of_identical_trajectories_are_a_tie() -> None:
    """The person put b between two trajectories with the same text."""
    assert merged([("a", "b"), ("b", "c"), ("a", "c")], {"a": "a", "b": "b", "c": "a"}) == []


def test_consistency_of_identical_trajectories_ranked_in_reverse_is_unknown() -> None:
    first = {"a": "a", "b": "a"}
    looks = [merged([("a", "b")], first), merged([("b", "a")], first)]
    assert consistency(looks) is None
    assert consistency([[("a", "b")], [("b", "a")]]) == -1


def test_blind_labels_of_two_people_are_no_repeat() -> None:
    def label(name: str, who: str, blind: bool = True) -> Label:
        words = (Word(kind="best", trajectory_id="a"),)
        return Label(id=name, step=1, group=0, words=words, who=who, blind=blind)

    people = [label("1", "Ann"), label("2", "Ben"), label("3", "Ann", blind=False)]
    assert repeated(people) == []
    assert [one.id for one in repeated([*people, label("4", "Ben")])] == ["2", "4"]
