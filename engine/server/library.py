"""Projects and runs on disk, as lists show them. Reads only; what lives is the supervisor's."""

import contextlib
import traceback
from pathlib import Path

from engine.environments.agent import packages_name
from engine.hosts.record import read_record
from engine.identity import begun_at
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
from engine.protocol.problems import (
    AtelierError,
    ConfigError,
    Problem,
    Refused,
    StoreError,
    in_one_line,
)
from engine.protocol.records import (
    LIVING,
    ProjectView,
    RunSpec,
    RunState,
    RunSummary,
    Split,
    SplitInfo,
)
from engine.protocol.supervised_events import LossMeasured
from engine.run import DATABASE, SPEC, is_locked, read_spec
from engine.run_files import check_run_folder
from engine.server.fingerprints import fingerprint, fingerprints
from engine.store.reader import RunReader
from engine.trust.addresses import address_problems
from engine.trust.files import file_problems
from engine.trust.projects import is_trusted

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
    """Library of the projects in the workspace, and of every project opened outside it."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace
        self._opened: set[Path] = set()
        self._runs: dict[str, Path] = {}
        self._summaries: dict[Path, tuple[tuple[float, ...], RunSummary]] = {}

    def projects(self) -> list[Path]:
        inside = {file.parent for file in self._workspace.glob(f"*/{FILE}")}
        known = inside | {path for path in self._opened if (path / FILE).is_file()}
        return sorted(known, key=lambda path: path.name)

    def open_project(self, path: Path) -> ProjectView:
        """Open a project. Raises ConfigError without a project.toml; a broken one opens with its
        problems."""
        path = path.expanduser().resolve()
        before = fingerprint(path / FILE)
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
            splits=_split_infos(path, config) if config and not is_outside(config) else [],
            runs=self.runs(path),
            trusted=is_trusted(path),
            files=fingerprints(path, config) | {FILE: before},
        )

    def files(self, path: Path) -> dict[str, str]:
        """Fingerprints of a project's files as they are now."""
        path = path.expanduser().resolve()
        try:
            config: ProjectConfig | None = load_config(path)
        except AtelierError:  # the view of the project says what is wrong with it
            config = None
        return fingerprints(path, config)

    def view(self, path: Path) -> ProjectView:
        """A project as lists show it: one that cannot be read is shown with the reason."""
        try:
            return self.open_project(path)
        # any file may be in the folder: whatever it makes our code raise stays with this project
        except Exception as error:  # noqa: BLE001
            return ProjectView(
                path=str(path),
                name=path.name,
                config=None,
                problems=[problem_of(error, path)],
                runs=self.runs(path),
                trusted=False,
            )

    def runs(self, project: Path) -> list[RunSummary]:
        """Runs of a project, newest first; a folder that cannot be read is shown as damaged, with
        the reason."""
        files = (file for name in (SPEC, DATABASE) for file in project.glob(f"runs/*/{name}"))
        folders = sorted({file.parent for file in files}, reverse=True)
        return [self.summary(folder) for folder in folders]

    def all_runs(self) -> list[RunSummary]:
        runs = [run for project in self.projects() for run in self.runs(project)]
        return sorted(runs, key=lambda run: run.id, reverse=True)

    def folder(self, run_id: str) -> Path:
        """Folder of a run, to be read. Raises Refused for an id that no known project holds,
        StoreError where something in it leads elsewhere."""
        folder = self.find(run_id)
        check_run_folder(folder)
        return folder

    def find(self, run_id: str) -> Path:
        """Folder of a run, whatever is in it. Raises Refused for an id that no known project
        holds."""
        if run_id in self._runs:
            return self._runs[run_id]
        for project in self.projects():
            for name in (SPEC, DATABASE):
                for file in project.glob(f"runs/*/{name}"):
                    if file.parent.name.endswith(run_id):
                        return file.parent
        raise Refused.of("run.unknown", f"There is no run {run_id}.", "Open its project first.")

    def remember(self, run_id: str, folder: Path) -> None:
        self._runs[run_id] = folder

    def forget(self, run_id: str) -> None:
        """Remove a run that is no longer on this machine."""
        if folder := self._runs.pop(run_id, None):
            self._summaries.pop(folder, None)

    def summary(self, folder: Path) -> RunSummary:
        stamp = _stamp(folder)
        cached = self._summaries.get(folder)
        if cached and cached[0] == stamp and cached[1].state not in LIVING:
            return cached[1]
        try:
            summary = summarise(folder)
        # a run folder may come from anywhere: whatever is in it must not take the others along
        except Exception as error:  # noqa: BLE001
            summary = _damaged(folder, problem_of(error, folder))
        self._runs[summary.id] = folder
        # What is being committed has changed the file's stamp already, and cannot be read yet.
        if (summary.host and summary.state in LIVING) or is_locked(folder):
            self._summaries.pop(folder, None)
        else:
            self._summaries[folder] = (stamp, summary)
        return summary


def summarise(folder: Path) -> RunSummary:
    """Fold a run's events into its row. Raises StoreError where the folder cannot be read."""
    check_run_folder(folder)
    spec = read_spec(folder)
    if spec.id != folder.name:
        raise StoreError.of(
            "store.other_id",
            f"Its {SPEC} is that of run {spec.id[:40]!a}, and its folder has another name.",
            "Give the folder the name of its run, outside of any project that has it already.",
            where=str(folder),
        )
    reader = RunReader(folder / DATABASE)
    try:
        seq = reader.last_seq()  # before the events: one that is stored meanwhile counts as newer
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
        seq=seq,
    )


def _file_problems(path: Path, config: ProjectConfig) -> list[Problem]:
    agent = config.agent
    found = file_problems(path, config) + address_problems(config)
    try:
        packages_name(path, agent)
    except ConfigError as error:
        found += [] if error.problem in found else [error.problem]
    if is_outside(config) or agent.command or (path / agent.file).is_file():
        return found
    missing = ConfigError.of(
        "agent.missing",
        f"There is no {agent.file} in the project.",
        "Write one with `rollout(scenario, model)`, or set agent.file.",
        where=str(path / agent.file),
    )
    return [*found, missing.problem]


def _split_infos(path: Path, config: ProjectConfig) -> list[SplitInfo]:
    """Splits whose file may be read; the others are among the problems."""
    found = []
    for split in _splits():
        with contextlib.suppress(ConfigError):
            if info := split_info(path, config, split):
                found.append(info)
    return found


def _splits() -> tuple[Split, Split]:
    return ("train", "validation")


def problem_of(error: Exception, where: Path) -> Problem:
    """Problem of a folder that cannot be read, from the error."""
    if isinstance(error, AtelierError):
        return error.problem
    return Problem(
        code="store.damaged",
        message=f"The folder cannot be read: {type(error).__name__}: {in_one_line(error)}.",
        hint="Repair the run, or remove it.",
        where=str(where),
        detail="".join(traceback.format_exception(error))[-4000:],
    )


def _stamp(folder: Path) -> tuple[float, ...]:
    """Modification times of a run's spec and database, WAL included."""

    def changed(name: str) -> float:
        file = folder / name
        return file.stat().st_mtime if file.exists() else 0.0

    return changed(DATABASE), changed(f"{DATABASE}-wal"), changed(SPEC)


def _damaged(folder: Path, problem: Problem) -> RunSummary:
    """A run that cannot be read, with what is known of it; one that is only beginning is not yet
    whole."""
    try:
        check_run_folder(folder)
        spec: RunSpec | None = read_spec(folder)
    except AtelierError:
        spec = None
    changed = folder.stat().st_mtime
    started = (spec.started_at if spec else None) or begun_at(folder.name) or changed
    return RunSummary(
        id=folder.name,
        name=spec.name if spec else folder.name[-8:].lower(),
        kind=spec.kind if spec else "train",
        project=folder.parents[1].name,
        project_path=str(folder.parents[1]),
        path=str(folder),
        state="starting" if is_locked(folder) else "damaged",
        step=0,
        steps=spec.updates if spec else 0,
        started_at=started,
        changed_at=changed,
        model=spec.config.model.name if spec else "",
        problem=problem,
    )
