"""Library of projects and runs on disk. Reads only; active runs belong to the lifecycle."""

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from engine.environments.agent_packages import packages_name
from engine.protocol.config.project import ProjectConfig
from engine.protocol.problems import AtelierError, ConfigError, Problem, Refused, readable
from engine.protocol.records.runs import ACTIVE_STATES, ProjectView, RunSummary, SplitInfo
from engine.remote.mirror.record import FILE as RECORD
from engine.server.services.fingerprints import fingerprint, fingerprints
from engine.server.services.run_table.summary_cache import SummaryCache
from engine.server.services.summaries import damaged_run, problem_of, same_id, summarise
from engine.storage.project import FILE, check_text, is_outside, load_config, read_toml, split_info
from engine.storage.run_folder.files import check_run_folder
from engine.storage.run_folder.notes import FILE as NOTES
from engine.storage.run_folder.run import DATABASE, SPEC, is_locked
from engine.trust.addresses import address_problems
from engine.trust.files import file_problems
from engine.trust.projects import is_trusted, is_trusted_run

RECENT = 200
"""Number of runs of a project in lists without pages."""
BUSY = ACTIVE_STATES | {"queued"}


class Library:
    """Library of the projects in the workspace, and of every project opened outside it."""

    def __init__(self, workspace: Path, cache: SummaryCache | None = None) -> None:
        """`cache` keeps summaries over the life of this engine."""
        self._workspace, self._cache = workspace, cache
        self._opened: set[Path] = set()
        self._runs: dict[str, Path] = {}
        self._summaries: dict[Path, tuple[tuple[float, ...], RunSummary]] = {}
        self._busy: set[Path] = set()
        """Folders of the runs that were active or queued when last read."""
        self._listing = threading.Lock()

    def projects(self) -> list[Path]:
        inside = {file.parent for file in self._workspace.glob(f"*/{FILE}")}
        known = inside | {path for path in self._opened if (path / FILE).is_file()}
        return sorted(known, key=lambda path: path.name)

    def open_project(self, path: Path) -> ProjectView:
        """Open a project, also a broken one with its problems. Raises ConfigError if it has no
        project.toml."""
        path = path.expanduser().resolve()
        if (shown := readable(str(path))) != str(path):
            raise ConfigError.of(
                "project.bad_name",
                "The folder's name is not UTF-8.",
                "Rename the folder.",
                where=shown,
            )
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
            runs=self.recent_runs(path),
            trusted=is_trusted(path),
            files=fingerprints(path, config) | {FILE: before},
        )

    def files(self, path: Path) -> dict[str, str]:
        """Current fingerprints, by relative path, of project.toml and the files that its settings
        name."""
        path = path.expanduser().resolve()
        try:
            config: ProjectConfig | None = load_config(path)
        except AtelierError:  # the view of the project says what is wrong with it
            config = None
        return fingerprints(path, config)

    def view(self, path: Path) -> ProjectView:
        """View of the project in folder `path`; an unreadable project is shown with the reason."""
        try:
            return self.open_project(path)
        # any file may be in the folder: whatever it makes our code raise stays with this project
        except Exception as error:  # noqa: BLE001
            return ProjectView(
                path=readable(str(path)),
                name=readable(path.name),
                config=None,
                problems=[problem_of(error, path)],
                runs=self.recent_runs(path),
                trusted=False,
            )

    def runs(self, project: Path) -> list[RunSummary]:
        """Runs of a project, newest first; an unreadable folder is shown as damaged."""
        with self._listing:  # a long list is read once, however many ask for it
            return [self.summary(folder) for folder in _run_folders(project)]

    def recent_runs(self, project: Path) -> list[RunSummary]:
        """Runs of a project, newest first: the newest `RECENT` that are not archived, and all older
        ones that this index knows as active or queued."""
        found: list[RunSummary] = []
        for folder in _run_folders(project):
            if len(found) < RECENT or folder in self._busy:
                run = self.summary(folder)
                if run.state in BUSY or not run.notes.archived:
                    found.append(run)
        return found

    def all_runs(self, only_recent: bool = False) -> list[RunSummary]:
        """Runs of all projects, newest first; `only_recent`: `recent_runs` of each."""
        listed = self.recent_runs if only_recent else self.runs
        runs = [run for project in self.projects() for run in listed(project)]
        return sorted(runs, key=lambda run: run.id, reverse=True)

    def folder(self, run_id: str) -> Path:
        """Verified folder of a run. Raises Refused for an id without a run in the known projects,
        StoreError if a file or link in it leads outside."""
        folder = self.find(run_id)
        check_run_folder(folder)
        return folder

    def find(self, run_id: str) -> Path:
        """Folder of a run; its files are not verified as in `folder`. Raises Refused if no known
        project has the run."""
        if run_id in self._runs:
            if os.path.lexists(self._runs[run_id]):
                return self._runs[run_id]
            self.forget(run_id)
        found = [
            file.parent
            for project in self.projects()
            for name in (SPEC, DATABASE)
            for file in project.glob(f"runs/*/{name}")
            if file.parent.name == run_id
        ]
        if not found:
            raise Refused.of("run.unknown", f"There is no run {run_id}.", "Open its project first.")
        return min(found, key=lambda folder: not is_trusted_run(folder))

    def remember(self, run_id: str, folder: Path) -> None:
        self._runs[run_id] = folder

    def forget(self, run_id: str) -> None:
        """Drop a run from this index, because it is no longer on this machine; deletes no file."""
        if folder := self._runs.pop(run_id, None):
            self._summaries.pop(folder, None)

    def summary(self, folder: Path) -> RunSummary:
        stamp = _stamp(folder)
        cached = self._summaries.get(folder)
        is_current = cached and cached[0] == stamp and cached[1].state not in ACTIVE_STATES
        if cached and is_current and self._runs.get(cached[1].id) == folder:
            return cached[1]
        known = self._cache.get(folder, stamp) if self._cache and not cached else None
        if known and self._runs.get(known.id) in (None, folder) and not is_locked(folder):
            self._runs[known.id] = folder
            self._summaries[folder] = (stamp, known)
            return known
        try:
            summary = summarise(folder)
        # a run folder may come from anywhere: whatever is in it must not take the others along
        except Exception as error:  # noqa: BLE001
            summary = damaged_run(folder, problem_of(error, folder))
        if owner := self._owner_of_id(folder):
            summary = same_id(folder, owner)
        self._runs[summary.id] = folder
        (self._busy.add if summary.state in BUSY else self._busy.discard)(folder)
        # What is being committed has changed the file's stamp already, and cannot be read yet.
        if (summary.host and summary.state in ACTIVE_STATES) or is_locked(folder):
            self._summaries.pop(folder, None)
        else:
            self._summaries[folder] = (stamp, summary)
            if self._cache and summary.state not in {*ACTIVE_STATES, "damaged"}:
                self._cache.put(folder, stamp, summary)
        return summary

    def _owner_of_id(self, folder: Path) -> Path | None:
        """Another run that has the same id and precedence; None if this run has precedence. A
        trusted run never loses its id to an untrusted one."""
        owner = self._runs.get(folder.name)
        if owner is None or owner == folder or owner.name != folder.name:
            return None
        is_there = any((owner / name).exists() for name in (SPEC, DATABASE))
        if not is_there or owner.parents[1].resolve() == folder.parents[1].resolve():
            return None
        return None if is_trusted_run(folder) and not is_trusted_run(owner) else owner


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
        "Create the file with a function `rollout(scenario, model)`, or set agent.file.",
        where=str(path / agent.file),
    )
    return [*found, missing.problem]


def _split_infos(path: Path, config: ProjectConfig) -> list[SplitInfo]:
    """Scenario files that can be read; the others are listed among the problems."""
    found = []
    for split in ("train", "validation"):
        with contextlib.suppress(ConfigError):
            if info := split_info(path, config, split):
                found.append(info)
    return found


def _run_folders(project: Path) -> Iterator[Path]:
    """Yield the run folders of a project, newest first."""
    try:
        names = sorted(os.listdir(project / "runs"), reverse=True)
    except OSError:  # no run yet, or a project that cannot be read
        return
    for name in names:
        folder = project / "runs" / name
        if any(os.path.exists(f"{folder}/{file}") for file in (SPEC, DATABASE)):
            yield folder


def _stamp(folder: Path) -> tuple[float, ...]:
    """Modification times of the files of a summary: database (with its WAL), spec, record of the
    server, notes. A missing file counts as 0, and so does an empty one: readers leave such WALs."""

    def changed(name: str) -> float:
        try:
            found = os.stat(f"{folder}/{name}")
        except OSError:
            return 0.0
        return found.st_mtime if found.st_size else 0.0

    return tuple(map(changed, (DATABASE, f"{DATABASE}-wal", SPEC, RECORD, NOTES)))
