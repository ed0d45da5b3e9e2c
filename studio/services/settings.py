"""Settings of the studio: one small TOML file in the user's config folder, replaced as a whole."""

import getpass
import json
import logging
import tomllib
from pathlib import Path
from typing import Any, Literal

import platformdirs
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from PySide6.QtCore import QObject, Signal

from engine.runtime.files import replace_file

log = logging.getLogger(__name__)

RECENT_PROJECTS = 12


class Settings(BaseModel):
    """Immutable settings; a change creates a new object. Unknown (newer) keys are dropped."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    theme: Literal["system", "dark", "light"] = "system"
    reduced_motion: bool = False
    desktop_notifications: bool = True
    """Whether news of runs are shown on the desktop while the window is in the background."""
    engine_python: str = ""
    """Python interpreter of the engine; that of the selected engine when empty."""
    workspace: str = ""
    """Folder of the projects; the default one when empty."""
    recent_projects: list[str] = Field(default_factory=list)
    geometry: str = ""
    """Window geometry as saved by Qt, in base 64."""
    sidebar_folded: bool = False
    splitters: dict[str, list[int]] = Field(default_factory=dict)
    """Page → sizes of its splitter in pixels."""
    last_page: str = "home"
    smoothing: float = 0.75
    extra_charts: list[str] = Field(default_factory=list)
    chart_order: list[str] = Field(default_factory=list)
    """Keys of the charts of the Run page in the order of the user; others follow."""
    hidden_charts: list[str] = Field(default_factory=list)
    """Keys of the charts that the user has hidden."""
    compared_models: list[str] = Field(default_factory=list)
    """Providers' models compared on the Checkpoints page (LiteLLM names)."""
    writer: dict[str, Any] = Field(default_factory=dict)
    """Fields of the last used `Writer`, the LLM that drafts projects."""
    saved_filters: list[str] = Field(default_factory=list)
    """Saved queries of the Trajectories page, newest first."""
    trajectory_columns: list[str] = Field(default_factory=list)
    """Titles of the columns of the trajectories table; empty: the default columns."""
    annotator: str = ""
    """Name under which labels are stored; the login name when empty."""
    grade_by_queue: bool = False
    """Whether blind grading follows the review queue instead of chance."""
    trains_on: dict[str, str] = Field(default_factory=dict)
    """Project path → name of the server on which it trains; absent: this machine."""
    clusters: dict[str, str] = Field(default_factory=dict)
    """Project path → name of the cluster on which it trains (empty: none), where that differs from
    its project.toml."""


def login_name() -> str:
    """Return the login name of the user; empty if the system knows none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an account without an entry, as in some containers
        return ""


def settings_path() -> Path:
    return Path(platformdirs.user_config_dir("atelier")) / "studio.toml"


def read(path: Path) -> Settings:
    """Load the settings; invalid or missing values become defaults and are logged."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Settings()
    except (OSError, ValueError) as error:
        log.warning("settings %s cannot be read: %s", path, error)
        return Settings()
    return _salvage(path, raw)


def _salvage(path: Path, raw: dict[str, Any]) -> Settings:
    try:
        return Settings.model_validate(raw)
    except ValidationError as error:
        wrong = {str(problem["loc"][0]) for problem in error.errors()}
        log.warning("settings %s: ignoring %s", path, ", ".join(sorted(wrong)))
        return Settings.model_validate({k: v for k, v in raw.items() if k not in wrong})


def write(path: Path, settings: Settings) -> None:
    """Write the settings atomically and sync them to disk. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, to_toml(settings.model_dump()))


def to_toml(values: dict[str, Any]) -> str:
    """Format settings (key → scalar, list or dictionary) as TOML: scalars and lists first, then
    one table per dictionary. JSON scalars are valid TOML."""
    flat = [f"{key} = {_scalar(value)}" for key, value in values.items() if not _table(value)]
    for name, table in values.items():
        if _table(table):
            lines = (f"{_scalar(str(key))} = {_scalar(value)}" for key, value in table.items())
            flat += ["", f"[{name}]", *lines]
    return "\n".join(flat) + "\n"


def _table(value: Any) -> bool:
    return isinstance(value, dict)


def _scalar(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


class SettingsStore(QObject):
    """Current settings and their file. Emits `changed(settings)` and `write_failed(text)`."""

    changed = Signal(object)
    write_failed = Signal(str)

    def __init__(self, path: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._path = path
        self.current = read(path)

    def update(self, **changes: Any) -> None:
        """Change fields, write the file, emit `changed`. Raises ValidationError if invalid."""
        merged = Settings.model_validate({**self.current.model_dump(), **changes})
        if merged == self.current:
            return
        self.current = merged
        try:
            write(self._path, merged)
        except (OSError, UnicodeEncodeError) as error:
            log.warning("settings %s cannot be written: %s", self._path, error)
            self.write_failed.emit(str(error))
        self.changed.emit(merged)

    def remember_project(self, path: str) -> None:
        """Put a project (path) at the top of the recent projects."""
        others = [known for known in self.current.recent_projects if known != path]
        self.update(recent_projects=[path, *others][:RECENT_PROJECTS])

    def forget_project(self, path: str) -> None:
        kept = [known for known in self.current.recent_projects if known != path]
        self.update(recent_projects=kept)
