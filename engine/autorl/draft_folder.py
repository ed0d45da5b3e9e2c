"""Run folder of a project draft, with all LLM requests and responses: none is paid for twice."""

import time
from pathlib import Path

import tomlkit

from engine.protocol.config.project import JudgeConfig, ProjectConfig
from engine.protocol.problems import ConfigError
from engine.protocol.records.runs import RunSpec
from engine.protocol.requests.drafts import DRAFT_MARK, DescribeTask, Writer
from engine.runtime.files import replace_file
from engine.runtime.ids import ulid
from engine.storage.project import FILE
from engine.storage.run_folder.run import make_open_ended_run, specs_of
from engine.trust.projects import require_trust, trust_new_project

NAME = "writing"
MOST_TOKENS = 4096


def judge_config_of(writer: Writer) -> JudgeConfig:
    """Settings for calls to the model that writes drafts, in the form of judge settings since both
    use the same client. Raises ConfigError for an invalid model name."""
    return JudgeConfig(
        enabled=True,
        models=(writer.model,),
        base_url=writer.base_url,
        budget_usd=writer.budget_usd,
        price_prompt=writer.price_prompt,
        price_completion=writer.price_completion,
        temperature=0.8,
        max_tokens=MOST_TOKENS,
    )


async def open_draft(wanted: DescribeTask) -> Path:
    """Return the folder of the run that stores the LLM calls of a project draft; the unfinished
    project `wanted.folder` and the run are created if missing. Raises ConfigError if the folder has
    other files or a finished project, Refused if the existing project is not trusted."""
    folder = Path(wanted.folder).expanduser().resolve()
    require_draft_folder(folder)
    if (folder / FILE).exists():
        require_trust(folder)
    if found := find_draft(folder):
        _keep_description(folder, wanted.description)
        return found
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / FILE).exists():
        replace_file(folder / FILE, DRAFT_MARK)
        trust_new_project(folder)
    _keep_description(folder, wanted.description)
    spec = RunSpec(
        id=ulid(),
        name=NAME,
        kind="writing",
        project=folder.name,
        started_at=time.time(),
        config=ProjectConfig(judge=judge_config_of(wanted.writer)),
        model_path="",
    )
    return await make_open_ended_run(folder, spec)


def find_draft(project: Path) -> Path | None:
    return next((folder for folder, spec in specs_of(project) if spec.kind == "writing"), None)


def require_draft_folder(folder: Path) -> None:
    """Raise ConfigError unless the folder is missing, empty, or an unfinished project."""
    if (folder / FILE).is_file() and not _is_unfinished(folder):
        raise ConfigError.of(
            "authoring.finished",
            "This project already exists; drafting it again would overwrite later changes.",
            "Edit the project under Setup or in its files, or choose another name.",
            where=str(folder),
        )
    if folder.exists() and any(folder.iterdir()) and not _is_unfinished(folder):
        raise ConfigError.of(
            "project.exists",
            f"{folder} exists and is not empty.",
            "Choose another name.",
            where=str(folder),
        )


def _keep_description(folder: Path, words: str) -> None:
    """Store the description in an unfinished project, so that it can be resumed."""
    if _is_unfinished(folder):
        file = folder / FILE
        document = tomlkit.parse(file.read_text(encoding="utf-8"))
        document["description"] = words
        replace_file(file, tomlkit.dumps(document))


def _is_unfinished(folder: Path) -> bool:
    file = folder / FILE
    return file.is_file() and file.read_text(encoding="utf-8").startswith(DRAFT_MARK)
