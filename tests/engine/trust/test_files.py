"""Files that a project names."""

import os
from pathlib import Path

import pytest

from engine.protocol.config.project import ProjectConfig
from engine.protocol.problems import AtelierError, ConfigError
from engine.trust.files import confirm_file, file_problems, named_files, project_file, read_regular

PASSWD = "/etc/passwd"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def attack(project: Path, name: str) -> str:
    """Make what the name needs; the name."""
    if name == "link":
        (project / name).symlink_to(PASSWD)
    if name == "folder/passwd":
        (project / "folder").symlink_to("/etc")
    if name == "pipe":
        os.mkfifo(project / name)
    return name


@pytest.mark.parametrize(
    "name",
    [PASSWD, "../../../../../../../../etc/passwd", "link", "folder/passwd", "~/.ssh/id_ed25519",
     "a/../../x", "nul\0byte", "pipe", "/dev/zero", ".", "x" * 5000],
)  # fmt: skip
def test_a_file_outside_or_no_file_is_refused(project: Path, name: str) -> None:
    with pytest.raises(ConfigError) as refused:
        project_file(project, attack(project, name), "judge.rubric")
    assert "judge.rubric" in refused.value.problem.message


def test_every_setting_that_names_a_file_is_checked(project: Path) -> None:
    values = {
        "agent": {"file": PASSWD, "requirements": PASSWD},
        "scenarios": {"train": PASSWD, "validation": PASSWD},
        "judge": {"rubric": PASSWD},
        "sft": {"data": PASSWD, "validation": PASSWD},
        "train": {"warmup": {"file": PASSWD}},
    }
    problems = file_problems(project, ProjectConfig.model_validate(values))
    print(sorted(one.where for one in problems))
    assert len(problems) == 8
    assert {one.code for one in problems} == {"file.outside"}


def test_no_setting_of_a_path_is_forgotten() -> None:
    """A new setting `relative to the project` has to be listed."""
    listed = {setting for setting, _ in named_files(ProjectConfig.model_validate(
        {"agent": {"requirements": "r"}, "sft": {"validation": "v"}, "train": {"warmup": {}}}
    ))}  # fmt: skip
    found = set()
    for section, field in ProjectConfig.model_fields.items():
        model = field.annotation
        for name, one in getattr(model, "model_fields", {}).items():
            if "relative to the project" in " ".join((one.description or "").split()):
                found.add(f"{section}.{name}")
    assert found
    assert found <= listed


def test_a_confirmed_file_is_read_by_this_project_alone(project: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared.md"
    shared.write_text("x")
    confirm_file(project, shared)
    assert project_file(project, str(shared), "judge.rubric") == shared
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(ConfigError):
        project_file(other, str(shared), "judge.rubric")


def test_a_project_behind_a_link_works(project: Path, tmp_path: Path) -> None:
    (project / "rubric.md").write_text("x")
    (tmp_path / "alias").symlink_to(project)
    found = project_file(tmp_path / "alias", "rubric.md", "judge.rubric")
    assert found == project / "rubric.md"


def test_reading_never_waits_and_has_a_limit(project: Path) -> None:
    os.mkfifo(project / "pipe")
    for name in (project / "pipe", Path("/dev/zero")):
        with pytest.raises(ValueError, match="not a regular file"):
            read_regular(name, 10)
    (project / "long").write_bytes(b"x" * 11)
    with pytest.raises(ValueError, match="larger"):
        read_regular(project / "long", 10)
    assert read_regular(project / "long", 11) == b"x" * 11


def test_gold_and_servers_behind_links_are_refused(project: Path) -> None:
    from engine.integrations.mcp_servers import read_servers

    (project / "mcp.json").symlink_to(PASSWD)
    with pytest.raises(AtelierError, match="outside"):
        read_servers(project)
