"""Writes the files of a trainable project from a draft."""

import shutil
from pathlib import Path

import tomlkit

from engine.autorl.draft_folder import judge_config_of, require_draft_folder
from engine.autorl.similarity import LEAST_HELD_OUT
from engine.integrations.mcp_servers import FILE as MCP
from engine.integrations.mcp_servers import check_file
from engine.models.registry import STARTERS
from engine.protocol.config.project import ProjectConfig
from engine.protocol.problems import ConfigError
from engine.protocol.requests.drafts import DRAFT_MARK, LEAST, Draft, FinishProject, Writer
from engine.rollout.sandbox.machine import trial_problem
from engine.runtime.files import replace_file
from engine.runtime.paths import RESOURCES
from engine.storage.project import FILE, load_config, load_scenarios, write_scenarios
from engine.trust.projects import trust_new_project

AGENTS = RESOURCES / "agents"
SYSTEM = "system.md"
STEPS = {"steps": 40, "groups": 4, "group_size": 8, "max_tokens": 256}
SMALL_LR = 2e-4
"""Learning rate of starter models; other models keep the default."""


def finish_project(request: FinishProject) -> Path:
    """Write the project of a draft into `request.folder` and return that folder. Raises
    ConfigError, before writing, for an incomplete draft, a finished project, or a folder with other
    files."""
    folder = Path(request.folder).expanduser().resolve()
    require_draft_folder(folder)
    _check(request.draft)
    is_new = not (folder / FILE).exists()
    copy_agent(folder, request.tools)
    replace_file(folder / SYSTEM, request.draft.system.strip() + "\n")
    replace_file(folder / "rubric.md", request.draft.rubric.strip() + "\n")
    (folder / "scenarios").mkdir(exist_ok=True)
    for split in ("train", "validation"):
        rows = [one for one in request.draft.scenarios if one.split == split]
        items = [
            {"id": f"{split[0]}{number:03}", **one.model_dump(exclude={"split"}, exclude_none=True)}
            for number, one in enumerate(rows, 1)
        ]
        write_scenarios(folder / "scenarios" / f"{split}.jsonl", items)
    replace_file(folder / FILE, _toml(request))
    if is_new:
        trust_new_project(folder)
    config = load_config(folder)
    load_scenarios(folder, config, "train")
    load_scenarios(folder, config, "validation")
    return folder


def copy_agent(folder: Path, tools: bool) -> None:
    """Copy the files of the template agent that `folder` lacks; with `tools`, those of the template
    that calls MCP tools."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in (AGENTS / ("tools" if tools else "described")).iterdir():
        if file.is_file() and not (folder / file.name).exists():
            shutil.copy(file, folder / file.name)


def begin_with_tools(folder: Path, servers: Path | None) -> None:
    """Create an unfinished project with the agent and its MCP servers, so that its packages can be
    installed and its tools listed. `servers` is the mcp.json to copy; None keeps the project's.
    Raises ConfigError if the file has no servers, or the folder has other files."""
    if servers is not None:
        check_file(servers)
    require_draft_folder(folder)
    copy_agent(folder, tools=True)
    if servers is not None and servers.resolve() != (folder / MCP).resolve():
        shutil.copy(servers, folder / MCP)
    if not (folder / FILE).exists():
        text = f'{DRAFT_MARK}[agent]\nrequirements = "requirements.txt"\n'
        replace_file(folder / FILE, text)
        trust_new_project(folder)


def _check(draft: Draft) -> None:
    lacking = [
        name
        for name, text in (("system prompt", draft.system), ("rubric", draft.rubric))
        if not text.strip()
    ]
    held_out = sum(one.split == "validation" for one in draft.scenarios)
    if lacking:
        raise ConfigError.of(
            "authoring.incomplete",
            f"The draft has no {' and no '.join(lacking)}.",
            "Write the missing part, or generate the draft again.",
        )
    if len(draft.scenarios) < LEAST or held_out < LEAST_HELD_OUT:
        raise ConfigError.of(
            "authoring.too_few",
            f"The draft has {len(draft.scenarios)} scenarios, {held_out} of them for validation.",
            f"Keep at least {LEAST}, {LEAST_HELD_OUT} of them for validation.",
        )


def _isolation() -> dict[str, object]:
    """Settings of an agent without tools: a sandbox where this machine offers one. The servers of
    tools may need the network and the person's files."""
    return {} if trial_problem() else {"sandbox": "process"}


def _toml(request: FinishProject) -> str:
    small = (request.learner or ProjectConfig().model.name) in {one.name for one in STARTERS}
    values: dict[str, dict[str, object]] = {
        "model": {"name": request.learner} if request.learner else {},
        "agent": {"requirements": "requirements.txt"} if request.tools else _isolation(),
        "judge": _judge(request.judge),
        "train": STEPS | ({"lr": SMALL_LR} if small else {}),
    }
    document = tomlkit.document()
    document["name"] = request.draft.title
    document["description"] = request.description or ""
    for section, entries in values.items():
        if entries:
            document[section] = entries
    return tomlkit.dumps(document)


def _judge(judge: Writer) -> dict[str, object]:
    config = judge_config_of(judge)
    kept = config.model_dump(
        include={"models", "base_url", "budget_usd", "price_prompt", "price_completion"},
        exclude_none=True,
    )
    return {"enabled": True, **kept, "models": list(config.models)}
