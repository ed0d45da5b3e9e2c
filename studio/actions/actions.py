"""Table of all user actions. Buttons, shortcuts, the command palette (Ctrl K) and the shortcut
sheet (?) are built from `ACTIONS`. The composition root binds a handler to each id."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from PySide6.QtCore import QObject, Qt
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QWidget

from studio.actions.keymap import DRAFT, TRAJECTORIES

ALWAYS = "always"


@dataclass(frozen=True)
class ActionSpec:
    """User action. `when`: condition that enables it (see `Actions.set_conditions`), `place`: its
    group in the shortcut sheet (?)."""

    id: str
    text: str
    icon: str
    shortcut: str = ""
    when: str = ALWAYS
    place: str = "Everywhere"
    bound: bool = True
    """False for keys that a widget handles itself: listed in the sheet, without a QAction."""


def _keys(place: str, *rows: tuple[str, str, str, str]) -> list[ActionSpec]:
    """Build unbound specs for keys that the widgets of a page handle."""
    return [
        ActionSpec(i, text, icon, keys, "run", place, bound=False) for i, text, icon, keys in rows
    ]


ACTIONS: tuple[ActionSpec, ...] = (
    ActionSpec("go.home", "Home", "house", "Ctrl+1", place="Go to"),
    ActionSpec("go.runs", "Runs", "rows-3", "Ctrl+2", "project", "Go to"),
    ActionSpec("go.setup", "Setup", "sliders-horizontal", "Ctrl+3", "project", "Go to"),
    ActionSpec("go.judge", "Judge", "scale", "Ctrl+4", "project", "Go to"),
    ActionSpec("go.run", "Run", "activity", "Ctrl+5", "project", "Go to"),
    ActionSpec("go.trajectories", "Trajectories", "git-fork", "Ctrl+6", "project", "Go to"),
    ActionSpec("go.checkpoints", "Checkpoints", "layers", "Ctrl+7", "project", "Go to"),
    ActionSpec("go.models", "Models", "box", "Ctrl+8", place="Go to"),
    ActionSpec("go.settings", "Settings", "settings", "Ctrl+,", place="Go to"),
    ActionSpec("app.commands", "Command palette", "search", "Ctrl+K"),
    ActionSpec("app.help", "Help", "circle-help", "F1"),
    ActionSpec("app.shortcuts", "Show keyboard shortcuts", "keyboard", "?"),
    ActionSpec("app.sidebar", "Collapse the sidebar", "panel-left", "Ctrl+B"),
    ActionSpec("app.theme", "Switch between light and dark theme", "moon", "Ctrl+Shift+T"),
    ActionSpec("app.quit", "Close the window (training continues)", "x", "Ctrl+Q"),
    ActionSpec("project.new", "New project", "plus", "Ctrl+N", "engine", "Project"),
    ActionSpec(
        "project.describe",
        "New project from a description…",
        "sparkles",
        "Ctrl+Shift+N",
        "engine",
        "Project",
    ),
    ActionSpec(
        "project.environment",
        "New project from verifiers or Inspect…",
        "box",
        "",
        "engine",
        "Project",
    ),
    ActionSpec("project.open", "Open folder", "folder-open", "Ctrl+O", "engine", "Project"),
    ActionSpec("project.import", "Import trajectories…", "import", "", "project", "Project"),
    ActionSpec("sft.open", "Demonstrations", "book-open", "Ctrl+D", "project", "Project"),
    ActionSpec(
        "sft.teacher", "Demonstrations from a teacher…", "sparkles", "", "trainable", "Project"
    ),
    ActionSpec("project.save", "Save", "save", "Ctrl+S", "project", "Project"),
    ActionSpec("run.train", "Train", "play", "Ctrl+Return", "trainable", "Run"),
    ActionSpec(
        "sft.train", "Train on demonstrations", "play", "Ctrl+Shift+Return", "trainable", "Run"
    ),
    ActionSpec(
        "run.train_lending",
        "Train, and lend the judge's API keys to the server for this run",
        "key-round",
        "",
        "lendable",
        "Run",
    ),
    ActionSpec("run.pause", "Pause or resume", "pause", "Ctrl+P", "living", "Run"),
    ActionSpec("run.stop_after", "Stop after this step", "square", "Ctrl+.", "living", "Run"),
    ActionSpec(
        "run.stop_now", "Stop now and keep the last checkpoint", "square", "", "stoppable", "Run"
    ),
    ActionSpec("run.keep", "Save a checkpoint after this step", "layers", "", "living", "Run"),
    ActionSpec("run.adapter", "Train from an existing adapter…", "import", "", "trainable", "Run"),
    ActionSpec("run.branch", "Branch…", "git-branch", "Ctrl+Shift+B", "branchable", "Run"),
    ActionSpec("run.resume", "Resume", "play", "Ctrl+R", "resumable", "Run"),
    ActionSpec("run.extend", "Train more steps", "plus", "", "extendable", "Run"),
    ActionSpec(
        "run.compare_parent",
        "Compare with the parent run",
        "git-compare-arrows",
        "",
        "branched",
        "Run",
    ),
    ActionSpec("run.choose", "Choose another run", "chevron-down", "Ctrl+J", "project", "Run"),
    ActionSpec("run.repair", "Repair the damaged run", "wrench", "", "damaged", "Run"),
    ActionSpec("run.remove", "Delete the damaged run…", "trash-2", "", "damaged", "Run"),
    ActionSpec("run.log", "Show the log", "square-terminal", "Ctrl+L", "run", "Run"),
    ActionSpec(
        "run.track", "Upload the run to its trackers", "upload", "Ctrl+Shift+U", "trackable", "Run"
    ),
    ActionSpec("labels.queue", "Review queue", "list-checks", "", "readable", "Run"),
    ActionSpec("labels.export", "Export labels…", "download", "", "readable", "Run"),
    ActionSpec("labels.import", "Import labels…", "import", "", "readable", "Run"),
    ActionSpec("run.bring_home", "Move the run to this machine…", "download", "", "remote", "Run"),
    ActionSpec("run.send", "Move the run to a server…", "upload", "", "sendable", "Run"),
    ActionSpec(
        "engine.choose", "Choose where this project trains", "server", "Ctrl+E", ALWAYS, "Engine"
    ),
    ActionSpec("servers.add", "Add a server…", "plus", "", "engine", "Engine"),
    ActionSpec("engines.open", "Engines…", "cpu", "", ALWAYS, "Engine"),
    ActionSpec("servers.open", "Servers…", "server", "", ALWAYS, "Engine"),
    ActionSpec("clusters.add", "Add a cluster…", "plus", "", "engine", "Engine"),
    ActionSpec("clusters.start", "Start SkyRL…", "play", "", "engine", "Engine"),
    ActionSpec("clusters.open", "Clusters…", "globe", "", ALWAYS, "Engine"),
    ActionSpec(
        "servers.connect", "Connect or reconnect the server", "plug-zap", "", "server", "Engine"
    ),
    ActionSpec(
        "models.search",
        "Search models on Hugging Face",
        "search",
        "Ctrl+Shift+M",
        "engine",
        "Models",
    ),
    ActionSpec("models.choose", "Choose the base model…", "box", "", "project", "Models"),
    ActionSpec("engine.start", "Start or reconnect the engine", "plug-zap", "", ALWAYS, "Engine"),
    ActionSpec("engine.restart", "Restart the engine", "rotate-ccw", "", "engine", "Engine"),
    ActionSpec("engine.doctor", "Check this machine", "search-check", "", "engine", "Engine"),
    *_keys(
        "Models",
        ("models.list", "Previous or next model", "arrow-down", "↑ ↓"),
        ("models.open", "Go to the selected model's buttons", "corner-down-left", "Enter"),
        ("models.delete", "Delete the model from this machine", "trash-2", "Del"),
        ("models.back", "Return to the search field", "search", "Esc"),
    ),
    *_keys("New project", *((k.id, k.text, k.icon, k.shown) for k in DRAFT)),
    *_keys("Trajectories", *((k.id, k.text, k.icon, k.shown) for k in TRAJECTORIES)),
    *_keys(
        "Run",
        ("strip.step", "Previous or next step (in the step strip)", "activity", "← →"),
        ("strip.branch", "Branch at the selected step (in the step strip)", "git-branch", "B"),
        (
            "strip.open",
            "Open the trajectories of the step (in the step strip)",
            "git-fork",
            "Enter",
        ),
        ("chart.full", "Expand or restore the chart", "maximize-2", "Enter, Esc"),
    ),
)


class Actions(QObject):
    """QActions of a window, one per bound entry of `ACTIONS`, enabled by conditions."""

    def __init__(self, window: QWidget) -> None:
        super().__init__(window)
        self._actions: dict[str, QAction] = {}
        self._true: set[str] = {ALWAYS}
        for spec in ACTIONS:
            if spec.bound:
                self._actions[spec.id] = self._make(window, spec)
        self.set_conditions(())

    def bind(self, **handlers: Callable[[], object]) -> None:
        """Connect handlers by keyword: `bind(run_train=f)` calls `f()` on the action "run.train".
        Raises KeyError for an unknown id."""
        for name, handler in handlers.items():
            self[name.replace("_", ".", 1)].triggered.connect(lambda _=False, call=handler: call())

    def set_conditions(self, conditions: Iterable[str]) -> None:
        """Enable only actions whose `when` is in `conditions` or is ALWAYS. The conditions
        (engine, project, run …) are defined in `shell.conditions`."""
        self._true = {ALWAYS, *conditions}
        for spec in ACTIONS:
            if spec.bound:
                self._actions[spec.id].setEnabled(spec.when in self._true)

    def holds(self, condition: str) -> bool:
        """Return whether a condition (see `set_conditions`) is met now."""
        return condition in self._true

    def __getitem__(self, action_id: str) -> QAction:
        return self._actions[action_id]

    def trigger(self, action_id: str) -> None:
        """Trigger the action with the id `action_id`; does nothing while it is disabled."""
        self._actions[action_id].trigger()

    def available(self) -> list[ActionSpec]:
        """Return the enabled actions, which the command palette lists."""
        return [spec for spec in ACTIONS if spec.bound and self._actions[spec.id].isEnabled()]

    def _make(self, window: QWidget, spec: ActionSpec) -> QAction:
        action = QAction(spec.text, window)
        action.setObjectName(spec.id)
        if spec.shortcut:
            action.setShortcut(QKeySequence(spec.shortcut))
            action.setShortcutContext(Qt.ShortcutContext.WindowShortcut)
        window.addAction(action)
        return action
