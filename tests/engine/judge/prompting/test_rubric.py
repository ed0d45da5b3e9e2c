"""Parsing of rubric.md: plain text, weighted criteria, and an error message for each fault."""

from pathlib import Path

import pytest

from engine.judge.prompting.rubric import load_rubric, parse_rubric
from engine.protocol.problems import ConfigError

FRONT = """---
criteria:
  - {name: right, weight: 3, words: The answer is right.}
  - name: brief
---

# Good answers

Be right.
"""


def test_plain_text_is_a_rubric_without_criteria() -> None:
    rubric = parse_rubric("Be right.\n")
    assert (rubric.text, rubric.criteria) == ("Be right.", ())


def test_criteria_are_parsed_from_front_matter() -> None:
    rubric = parse_rubric(FRONT)
    assert rubric.text == "# Good answers\n\nBe right."
    assert [(c.name, c.weight, c.words) for c in rubric.criteria] == [
        ("right", 3, "The answer is right."),
        ("brief", 1, ""),
    ]


def test_any_edit_changes_the_version() -> None:
    assert parse_rubric(FRONT).version == parse_rubric(FRONT).version
    assert parse_rubric(FRONT).version != parse_rubric(FRONT + " ").version


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("---\ncriteria: []\n", "no closing ---"),
        ("---\na: [\n---\n", "not YAML"),
        ("---\nother: 1\n---\n", "may contain only"),
        ("---\ncriteria: 3\n---\n", "not a list"),
        ("---\ncriteria: [{name: a, weight: -1}]\n---\n", "weight"),
        ("---\ncriteria: [{name: a}, {name: a}]\n---\n", "same name"),
    ],
)
def test_invalid_front_matter_raises_config_error(source: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_rubric(source)


def test_missing_file_raises_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_rubric(tmp_path / "rubric.md")


@pytest.mark.parametrize(
    "front",
    [
        "a: &a [x]\ncriteria: [*a]",
        "criteria: " + "[" * 5000,
        "criteria: [{name: !!int '', weight: 1, words: x}]",
        "criteria: [{name: !!bool z, weight: 1, words: x}]",
        "criteria: []\n" + "#" * 2**16,
        "!!python/object/apply:os.system [id]",
    ],
)
def test_hostile_front_matter_is_rejected(front: str) -> None:
    with pytest.raises(ConfigError, match="front matter"):
        parse_rubric(f"---\n{front}\n---\ntext")
