"""Form for a project from an environment of verifiers: names, arguments, and fields of problems."""

import pytest

from engine.protocol.records.runs import ProjectView, SplitInfo
from studio.store.projects import environment_form as form


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ("sophistry-bench-sprint==0.1.6", "sophistry-bench-sprint"),
        ("staros-stardata[env]:stardata.envs.sokoban_gym", "staros-stardata"),
        ("/home/me/my env/", "my-env"),
        ("~/word_games", "word_games"),
        ("tasks/arithmetic.py@sums", "sums"),
        ("tasks/arithmetic.py", "arithmetic"),
        ("inspect-evals==0.26.0/gsm8k", "gsm8k"),
        ("", ""),
    ],
)
def test_folder_is_named_after_the_environment(environment: str, folder: str) -> None:
    assert form.folder_of(environment) == folder


@pytest.mark.parametrize(
    ("text", "problem"),
    [("", False), ('{"a": 1}', False), ("[1]", True), ("{", True), ("[" * 100_000, True)],
)
def test_arguments_are_a_json_object(text: str, problem: bool) -> None:
    assert bool(form.arguments_problem(text)) == problem


def test_name_of_a_project_without_scenarios_is_free() -> None:
    split = SplitInfo(split="train", path="scenarios/train.jsonl", count=0)
    view = ProjectView(path="/w/games", name="games", config=None, splits=[split])
    assert form.folder_problem("games", [view]) == ""
    whole = view.model_copy(update={"splits": [split.model_copy(update={"count": 3})]})
    assert "already exists" in form.folder_problem("games", [whole])
    assert form.folder_problem("", []) == "Enter a name."


def test_problems_have_a_field() -> None:
    assert form.field_of("task.not_found") == "name"
    assert form.field_of("inspect.no_task") == "name"
    assert form.field_of("project.exists") == "folder"
    assert form.field_of("agent.needs_packages") == ""
