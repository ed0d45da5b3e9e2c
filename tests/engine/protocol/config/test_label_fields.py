"""Custom label fields in project.toml: kinds, values, and one clear sentence about a mistake."""

import tomllib

import pytest

from engine.protocol.config.labels import LabelField
from engine.protocol.config.project import ProjectConfig
from engine.protocol.config.validation import config_problems

GOOD = """
[labels.fields.tone]
kind = "choice"
choices = ["rude", "neutral", "very kind"]
[labels.fields.steps]
kind = "number"
low = 2
high = 10
[labels.fields.why]
kind = "text"
"""


def test_values_are_checked_and_scaled() -> None:
    fields = ProjectConfig.model_validate(tomllib.loads(GOOD)).labels.fields
    tone, steps, why = fields["tone"], fields["steps"], fields["why"]
    assert [tone.scaled(one) for one in tone.choices] == [0.0, 0.5, 1.0]
    assert [steps.scaled(one) for one in (2.0, 6.0, 10.0)] == [0.0, 0.5, 1.0]
    assert tone.problem_of("kind") == "Choose one of: rude, neutral, very kind."
    assert steps.problem_of(11.0) == steps.problem_of("x") == "Enter a number from 2 to 10."
    assert why.problem_of(" ") == "Enter some text."
    assert [tone.problem_of("rude"), steps.problem_of(2.0), why.problem_of("x")] == [""] * 3
    assert [one.may_be_part for one in (tone, steps, why)] == [True, True, False]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('kind = "choice"\nchoices = ["a"]', "at least two different choices"),
        ('kind = "choice"\nchoices = ["a", "b/c"]', "'b/c'"),
        ('kind = "number"\nlow = 3\nhigh = 3', "low below high"),
        ('kind = "text"\nlow = 3', 'write kind = "number"'),
        ('kind = "text"\nchoices = ["a", "b"]', 'write kind = "choice"'),
        ('kind = "mood"', "choice"),
    ],
)
def test_mistakes_are_located_and_explained(text: str, words: str) -> None:
    source = f"[labels.fields.tone]\n{text}\n"
    (problem, *_) = config_problems(tomllib.loads(source), source)
    assert words in problem.message + problem.hint, problem
    assert "tone" in problem.message + (problem.where or "") or "line" in (problem.where or "")


def test_unknown_key_names_the_nearest() -> None:
    source = '[labels.fields.tone]\nkind = "choice"\nchoises = ["a", "b"]\n'
    problem = config_problems(tomllib.loads(source), source)[0]
    assert problem.message == "There is no `choises` in [labels.fields.tone]."
    assert problem.hint == "Did you mean `choices`?"
    assert "line 3" in (problem.where or "")


def test_field_names_are_checked() -> None:
    source = '[labels.fields."a/b"]\nkind = "text"\n'
    (problem,) = config_problems(tomllib.loads(source), source)
    assert "'a/b'" in problem.message
    assert LabelField(kind="text").question == ""
