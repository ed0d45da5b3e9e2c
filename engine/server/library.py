"""Projects and runs on disk, as lists show them. Reads only; what lives is the supervisor's."""

from pathlib import Path

from engine.environments.agent import packages_name
from engine.hosts.record import read_record
from engine.project import FILE, check_text, is_outside, load_config, read_toml, split_info
from engine.protocol.config import ProjectConfig
from engine.protocol.events import (
    RunExtended,
    RunFailed,
    RunFinished,
    RunStarted,
    RunStopped,
    StepFinished,
    ValidationFinished,
)
from engine.protocol.problems import AtelierError, ConfigError, Problem, Refused
from engine.protocol.records import LIVING, ProjectView, RunState, RunSummary, Split
from engine.protocol.supervised_events import LossMeasured
from engine.run import DATABASE, SPEC, is_locked, read_spec
from engine.store.reader import RunReader

SUMMARY_KINDS = (
    "run.queued",
    "run.started",
    "run.extended",
    "run.paused",
    "run.continued",
    "run.stopped",
    "run.failed",
    "run.finished",
    "review.opened",
    "review.closed",
    "step.finished",
    "validation.finished",
    "loss.measured",
)

STATES: dict[str, RunState] = {
    "run.queued": "queued",
    "run.started": "running",
    "run.continued": "running",
    "run.paused": "paused",
    "review.opened": "reviewing",
    "review.closed": "running",
    "run.stopped": "stopped",
    "run.failed": "failed",
    "run.finished": "finished",
}


class Library:
    """Knows the workspace, and every project that was opened outside it."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace
        self._opened: set[Path] = set()
        self._runs: dict[str, Path] = {}
        self._summaries: dict[Path, tuple[tuple[float, float], RunSummary]] = {}

    def projects(self) -> list[Path]:
        inside = {file.parent for file in self._workspace.glob(f"*/{FILE}")}
        known = inside | {path for path in self._opened if (path / FILE).is_file()}
        return sorted(known, key=lambda path: path.name)

    def open_project(self, path: Path) -> ProjectView:
        """Raises ConfigError without a project.toml; a broken one opens with its problems."""
        path = path.expanduser().resolve()
        toml = read_toml(path)
        self._opened.add(path)
        problems = check_text(toml)
        config = None if problems else load_config(path)
        return ProjectView(
            path=str(path),
            name=(config.name if config else "") or path.name,
            description=config.description if config else "",
            config=config,
            toml=toml,
            problems=problems + (_file_problems(path, config) if config else []),
            splits=[
                info
                for split in _splits()
                if config and not is_outside(config) and (info := split_info(path, config, split))
            ],
            runs=self.runs(path),
        )

    def runs(self, project: Path) -> list[RunSummary]:
        """Newest first; a folder that cannot be read is shown as failed, with the reason."""
        folders = sorted(project.glob(f"runs/*/{SPEC}"), reverse=True)
        return [self.summary(file.parent) for file in folders]

    def all_runs(self) -> list[RunSummary]:
        runs = [run for project in self.projects() for run in self.runs(project)]
        return sorted(runs, key=lambda run: run.id, reverse=True)

    def folder(self, run_id: str) -> Path:
        """Raises Refused for an id that no known project holds."""
        if run_id in self._runs:
            return self._runs[run_id]
        for project in self.projects():
            for file in project.glob(f"runs/*/{SPEC}"):
                if file.parent.name.endswith(run_id):
                    return file.parent
        raise Refused.of("run.unknown", f"There is no run {run_id}.", "Open its project first.")

    def remember(self, run_id: str, folder: Path) -> None:
        self._runs[run_id] = folder

    def forget(self, run_id: str) -> None:
        """It is here no more."""
        if folder := self._runs.pop(run_id, None):
            self._summaries.pop(folder, None)

    def summary(self, folder: Path) -> RunSummary:
        stamp = _stamp(folder)
        cached = self._summaries.get(folder)
        if cached and cached[0] == stamp and cached[1].state not in LIVING:
            return cached[1]
        try:
            summary = summarise(folder)
        except AtelierError as error:
            summary = _unreadable(folder, error.problem)
        self._runs[summary.id] = folder
        # What is being committed has changed the file's stamp already, and cannot be read yet.
        if (summary.host and summary.state in LIVING) or is_locked(folder):
            self._summaries.pop(folder, None)
        else:
            self._summaries[folder] = (stamp, summary)
        return summary


def summarise(folder: Path) -> RunSummary:
    """Fold a run's events into its row. Raises StoreError where the folder cannot be read."""
    spec = read_spec(folder)
    reader = RunReader(folder / DATABASE)
    try:
        events = reader.events_of(*SUMMARY_KINDS)
        trajectories, unscored = reader.counts()
    finally:
        reader.close()
    steps: dict[int, float | None] = {}
    planned = spec.updates
    losses: dict[int, float] = {}
    validations, problem, device = [], None, ""
    state: RunState = "starting"
    changed = spec.started_at
    for event in events:
        state = STATES.get(event.kind, state)
        changed = max(changed, event.at)
        match event:
            case StepFinished():
                steps[event.step] = event.metrics.get("reward/mean")
            case ValidationFinished():
                validations.append(event)
            case LossMeasured():
                losses[event.step] = event.loss
            case RunExtended():
                planned = event.steps
            case RunStarted():
                device, problem = event.device, None
            case RunFailed():
                problem = event.problem
            case RunStopped() | RunFinished():
                problem = None
    elsewhere = read_record(folder)
    if state in LIVING and not elsewhere and not is_locked(folder):
        state = "stopped"
        problem = Problem(
            code="run.interrupted",
            message="The engine ended while this run was going on.",
            hint="Start its script again: it goes on by itself."
            if spec.kind == "outside"
            else "Resume goes on from the last checkpoint; everything stored is kept.",
        )
    plan = spec.evaluation
    validations.sort(key=lambda event: event.step)
    return RunSummary(
        id=spec.id,
        name=spec.name,
        kind=spec.kind,
        project=spec.project,
        project_path=str(folder.parents[1]),
        path=str(folder),
        host=elsewhere.host if elsewhere else "",
        state=state,
        step=max(steps, default=0),
        steps=planned,
        started_at=spec.started_at,
        changed_at=changed,
        device=device,
        model=spec.config.model.name,
        source=spec.source,
        parent=spec.parent,
        rewards=[steps[number] for number in sorted(steps)] if spec.kind != "sft" else [],
        losses=[losses[number] for number in sorted(losses)],
        validation=validations[-1].reward if validations else None,
        baseline=validations[0].reward if validations and validations[0].step == 0 else None,
        trajectories=trajectories,
        unscored=unscored,
        contestants=[one.name for one in plan.contestants] if plan else [],
        attempts=plan.total if plan else 0,
        problem=problem,
    )


def _file_problems(path: Path, config: ProjectConfig) -> list[Problem]:
    agent = config.agent
    found = []
    try:
        packages_name(path, agent)
    except ConfigError as error:
        found.append(error.problem)
    if is_outside(config) or agent.command or (path / agent.file).is_file():
        return found
    missing = ConfigError.of(
        "agent.missing",
        f"There is no {agent.file} in the project.",
        "Write one with `rollout(scenario, model)`, or set agent.file.",
        where=str(path / agent.file),
    )
    return [*found, missing.problem]


def _splits() -> tuple[Split, Split]:
    return ("train", "validation")


def _stamp(folder: Path) -> tuple[float, float]:
    """Changes whenever the database does; WAL included."""

    def changed(name: str) -> float:
        file = folder / name
        return file.stat().st_mtime if file.exists() else 0.0

    return changed(DATABASE), changed(f"{DATABASE}-wal")


def _unreadable(folder: Path, problem: Problem) -> RunSummary:
    return RunSummary(
        id=folder.name,
        name=folder.name[-8:].lower(),
        kind="train",
        project=folder.parents[1].name,
        project_path=str(folder.parents[1]),
        path=str(folder),
        state="failed",
        step=0,
        steps=0,
        started_at=folder.stat().st_mtime,
        changed_at=folder.stat().st_mtime,
        problem=problem,
    )
