"""Lines that `atelier train` prints about validations."""

from engine.cli.commands import train
from engine.protocol.events.run import ValidationFinished
from engine.protocol.records.comparison import StepComparison
from engine.protocol.records.runs import Interval


def interval(mean: float) -> Interval:
    return Interval(mean=mean, low=mean - 0.1, high=mean + 0.1, count=12)


def validation(**fields: object) -> ValidationFinished:
    plain = {"step": 4, "reward": None, "scenarios": {}, "unscored": 0, "seconds": 1.0}
    return ValidationFinished.model_validate({**plain, **fields})


def test_validation_shows_win_rate_and_criteria() -> None:
    event = validation(
        against=(StepComparison(opponent=0, scores={"a": 1.0}),),
        win_rates={4: interval(0.8)},
        criteria={"Right answer": interval(0.75), "Brevity": interval(0.5)},
    )
    line = "win rate against step 0: 80 % (70 % to 90 %); Right answer 0.75; Brevity 0.50"
    assert train._validation(event) == line


def test_validation_without_a_judge_shows_the_reward() -> None:
    assert train._validation(validation(reward=interval(0.5))) == "0.50 (0.40 to 0.60)"
    assert train._validation(validation(unscored=2)) == "no rollout could be scored"
    assert train._validation(validation()).startswith("reference for the win rates")
