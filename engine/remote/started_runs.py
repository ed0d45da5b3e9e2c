"""Records of runs that this machine started on servers, with their original settings.

Data from a server decides nothing that costs money, names an address or runs code: the judge, its
address and budget, experiment tracking and the agent always follow the settings recorded here. Each
run has one small user file beside the list of servers.
"""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine.protocol.config.project import ProjectConfig
from engine.protocol.config.validation import changed_config
from engine.protocol.identifiers import RunId, is_run_id
from engine.protocol.problems import AtelierError, Refused
from engine.protocol.records.judging import provider_of
from engine.protocol.records.runs import RunSpec
from engine.protocol.requests.runs import StartEvaluation, StartRun
from engine.remote.server_list import server_list_file
from engine.runtime.files import replace_file
from engine.storage.checkpoints.references import find_run
from engine.storage.project import load_config

FOLDER = "remote_runs"
GUARDED = ("agent", "judge", "evaluate", "track", "scenarios", "reward")
"""Sections of the settings that contain code, files, addresses or budgets."""


class StartedRun(BaseModel):
    """Run on a server, with the settings that the person started it with."""

    model_config = ConfigDict(extra="ignore")

    run_id: RunId
    host: str
    """Name that the server has on this machine."""
    project: str
    """The project's folder on this machine."""
    config: ProjectConfig
    providers: list[str] = Field(default_factory=list)
    """Provider models that an evaluation compares."""
    keys_at_home: bool = True
    """Whether API keys stay on this machine, so that the run's judge requests are executed here."""
    spent_usd: dict[str, float] = Field(default_factory=dict)
    """Upper bound of the cost in USD of requests made from here, for `judge` and for `evaluate`."""

    @property
    def folder(self) -> Path:
        """Local folder of the run's replica."""
        return Path(self.project) / "runs" / self.run_id


class StartedRuns:
    """Store of the records of all started runs, one file each. Not thread-safe."""

    def __init__(self) -> None:
        self._folder = server_list_file().parent / FOLDER
        self._known: dict[str, StartedRun] = {}

    def find(self, run_id: str, host: str) -> StartedRun | None:
        """Record of a run, if this machine started it on server `host`; None otherwise."""
        if not is_run_id(run_id):
            return None
        if run_id not in self._known:
            try:
                data = (self._folder / f"{run_id}.json").read_bytes()
                self._known[run_id] = StartedRun.model_validate_json(data)
            except (OSError, ValidationError):
                return None
        found = self._known[run_id]
        return found if found.host == host else None

    def add(self, run: StartedRun) -> None:
        """Store the record of a new run; no effect if the same run has one. Raises Refused if the
        server chose the id of another run."""
        if self.find(run.run_id, run.host) or (self._folder / f"{run.run_id}.json").exists():
            known = self._known.get(run.run_id)
            if known is None or (known.host, known.project) != (run.host, run.project):
                raise Refused.of(
                    "host.taken_id",
                    f"{run.host} returned an id that another run already has: {run.run_id}.",
                    "Nothing was changed here. Check the processes on that server.",
                )
            return
        self.save(run)

    def save(self, run: StartedRun) -> None:
        """Store the record of a run, replacing an earlier one; it is on the disk when this
        returns."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._known[run.run_id] = run
        replace_file(self._folder / f"{run.run_id}.json", run.model_dump_json() + "\n")

    def forget(self, run_id: str) -> None:
        """Remove the record of a run that is now a run of this machine."""
        self._known.pop(run_id, None)
        if is_run_id(run_id):
            (self._folder / f"{run_id}.json").unlink(missing_ok=True)


def settings_of(project: Path, request: StartRun | StartEvaluation) -> ProjectConfig:
    """Settings with which this machine expects the server to start the requested run. Raises
    ConfigError."""
    if isinstance(request, StartEvaluation):
        overrides = dict(request.overrides)
        if request.judge is not None:
            overrides["judge.enabled"] = request.judge
        return load_config(project, overrides)
    parent = _parent(project, request.origin)
    if parent and "sft" not in (parent.kind, request.kind):
        return changed_config(parent.config, request.overrides)
    return load_config(project, request.overrides)


def _parent(project: Path, origin: str) -> RunSpec | None:
    """Spec of the run that a branch starts from; None if it is not on this machine."""
    if "@" not in origin or "/" in origin:
        return None
    try:
        return find_run(project, origin.partition("@")[0])[1]
    except AtelierError:
        return None


def provider_models(request: StartRun | StartEvaluation) -> list[str]:
    """Provider models (`provider/model`) that an evaluation compares; empty for other runs."""
    models = request.models if isinstance(request, StartEvaluation) else []
    return [model for model in models if "/" in model]


def providers_of(config: ProjectConfig, models: list[str]) -> set[str]:
    """Providers whose API keys a run needs: of its judges if they are enabled, and of `models`."""
    judges = config.judge.models if config.judge.enabled else ()
    return {provider_of(model) for model in (*judges, *models)}


def check_spec(spec: RunSpec, run_id: str, known: ProjectConfig, host: str) -> None:
    """Check the spec that server `host` returned for run `run_id`. Raises Refused if it is of
    another run, or if a section in `GUARDED` differs from `known`, the settings with which this
    machine started the run."""
    if spec.id != run_id:
        raise Refused.of("host.other_run", f"{host} sent run {spec.id[:40]!a} instead of {run_id}.")
    for name in GUARDED:
        if _comparable(spec.config, name) != _comparable(known, name):
            raise Refused.of(
                "host.other_settings",
                f"The [{name}] settings of run {run_id} on {host} differ from those that this "
                "machine started it with, so the run is not mirrored.",
                "If you started the run there with other settings, put those into project.toml. "
                "Otherwise check the processes on that server.",
            )


def _comparable(config: ProjectConfig, name: str) -> object:
    section = getattr(config, name)
    if name == "judge":  # an evaluation may go without
        return section.model_copy(update={"enabled": True, "local": False})
    return section
