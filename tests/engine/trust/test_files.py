"""Files named by project settings."""

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


def create_target(project: Path, name: str) -> str:
    """Create what `name` refers to; returns `name`."""
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
def test_file_outside_the_project_or_no_file_is_rejected(project: Path, name: str) -> None:
    with pytest.raises(ConfigError) as error:
        project_file(project, create_target(project, name), "judge.rubric")
    assert "judge.rubric" in error.value.problem.message


def test_every_file_setting_is_checked(project: Path) -> None:
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


def test_every_path_setting_is_listed() -> None:
    """A new setting described as `relative to the project` must be listed."""
    listed = {setting for setting, _ in named_files(ProjectConfig.model_validate(
        {"agent": {"requirements": "r"}, "sft": {"validation": "v"}, "train": {"warmup": {}}}
    ))}  # fmt: skip
    settings = set()
    for section, field in ProjectConfig.model_fields.items():
        model = field.annotation
        for name, one in getattr(model, "model_fields", {}).items():
            if "relative to the project" in " ".join((one.description or "").split()):
                settings.add(f"{section}.{name}")
    assert settings
    assert settings <= listed


def test_confirmed_file_is_readable_by_this_project_only(project: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared.md"
    shared.write_text("x")
    confirm_file(project, shared)
    assert project_file(project, str(shared), "judge.rubric") == shared
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(ConfigError):
        project_file(other, str(shared), "judge.rubric")


def test_project_behind_a_link_works(project: Path, tmp_path: Path) -> None:
    (project / "rubric.md").write_text("x")
    (tmp_path / "alias").symlink_to(project)
    settings = project_file(tmp_path / "alias", "rubric.md", "judge.rubric")
    assert settings == project / "rubric.md"


def test_read_regular_never_blocks_and_has_a_limit(project: Path) -> None:
    os.mkfifo(project / "pipe")
    for name in (project / "pipe", Path("/dev/zero")):
        with pytest.raises(ValueError, match="not a regular file"):
            read_regular(name, 10)
    (project / "long").write_bytes(b"x" * 11)
    with pytest.raises(ValueError, match="larger"):
        read_regular(project / "long", 10)
    assert read_regular(project / "long", 11) == b"x" * 11


def test_mcp_servers_file_behind_a_link_is_rejected(project: Path) -> None:
    from engine.integrations.mcp_servers import read_servers

    (project / "mcp.json").symlink_to(PASSWD)
    with pytest.raises(AtelierError, match="outside"):
        read_servers(project)
