"""Which module is an environment, and its API: found in source text that is never run."""

import zipfile
from pathlib import Path

import pytest

from engine.integrations.packaged_tasks.wheels import sources_of_folder, sources_of_wheel
from engine.integrations.verifiers.inspection import FoundModule, find_module
from engine.protocol.problems import ConfigError

CLASSIC = "import verifiers as vf\n\ndef load_environment(n=1):\n    raise SystemExit\n"
TASKSET = "import verifiers.v1 as vf\n\nclass Mine(vf.Taskset[Task, Config]):\n    ...\n"
EXPORTS = "from mine.taskset import Mine\n\n__all__ = ['Mine']\n"


@pytest.mark.parametrize(
    ("sources", "name", "wanted", "found"),
    [
        ({"my_env.py": CLASSIC}, "my-env", "", FoundModule("my_env", "environment")),
        ({"My_env.py": CLASSIC}, "other", "", FoundModule("My_env", "environment")),
        (
            {"mine/__init__.py": EXPORTS, "mine/taskset.py": TASKSET},
            "mine",
            "",
            FoundModule("mine", "taskset"),
        ),
        (
            {"a/__init__.py": "from a.b import load_environment", "a/b.py": CLASSIC},
            "package",
            "",
            FoundModule("a", "environment"),
        ),
        (
            {"a/__init__.py": "", "a/one.py": CLASSIC, "a/two.py": CLASSIC},
            "package",
            "a.two",
            FoundModule("a.two", "environment"),
        ),
        ({"e.py": "load_environment = make()"}, "e", "", FoundModule("e", "environment")),
    ],
)
def test_module_is_found(
    sources: dict[str, str], name: str, wanted: str, found: FoundModule
) -> None:
    assert find_module(sources, name, wanted) == found


@pytest.mark.parametrize(
    ("sources", "wanted", "words"),
    [
        ({"a/one.py": CLASSIC, "a/two.py": CLASSIC}, "", "Name the module after a colon: x:a.one."),
        ({"x.py": "def load(): ..."}, "", "has neither load_environment() nor a Taskset."),
        ({"x.py": "def load_environment(:"}, "", "has neither load_environment()"),
        ({"x.py": CLASSIC}, "y", "Modules that are environments: x."),
    ],
)
def test_module_that_is_not_clear_is_refused(
    sources: dict[str, str], wanted: str, words: str
) -> None:
    with pytest.raises(ConfigError) as error:
        find_module(sources, "x", wanted)
    assert words in str(error.value)


def test_sources_are_read_from_wheel_and_folder(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "tests").mkdir(parents=True)
    (folder / "env.py").write_text(CLASSIC)
    (folder / "tests" / "test_env.py").write_text(CLASSIC)
    assert sources_of_folder(folder) == {"env.py": CLASSIC}
    with zipfile.ZipFile(tmp_path / "env-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("env.py", CLASSIC)
        wheel.writestr("env-1.0.dist-info/METADATA", "Name: env")
    assert sources_of_wheel(tmp_path / "env-1.0-py3-none-any.whl") == {"env.py": CLASSIC}
