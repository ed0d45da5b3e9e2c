"""Sheet that starts SkyRL's server as a cluster: machine, base model and options. For several nodes
it shows the commands that start SkyRL by hand.
"""

from functools import partial
from typing import Any

from PySide6.QtCore import Qt, QTimer, Signal, Slot
from PySide6.QtWidgets import QLineEdit, QWidget

from engine.protocol.problems import ConfigError, Problem
from engine.protocol.records.choices import ModelInfo
from engine.protocol.requests.clusters import (
    ClusterView,
    LaunchCommands,
    LaunchRequest,
    SkyrlSettings,
    StartCluster,
    cluster_spec,
)
from studio.pages.clusters.result import Result
from studio.runtime.tasks import TaskScope
from studio.services.session import Session
from studio.store.servers.cluster_rows import HERE, is_up
from studio.store.servers.servers import tick_words
from studio.widgets.cards.sheet import Sheet
from studio.widgets.controls.buttons import Button
from studio.widgets.controls.command_block import CommandBlock
from studio.widgets.forms.form import FormRow
from studio.widgets.forms.form_fields import ChoiceField, SpinField, SuggestField, TextField
from studio.widgets.layouts import STRETCH, add, vbox
from studio.widgets.text.text import Text

LABEL_PX = 116
ASK_MS = 300
"""Pause in typing after which the commands are requested again."""
NAME = "skyrl"
WORDS = (
    "SkyRL's server samples and trains. It listens on 127.0.0.1 of its machine only, and Atelier "
    "reaches a server of yours through the SSH tunnel. It runs until it is stopped; its "
    "checkpoints stay."
)
BY_HAND = (
    "SkyRL spans several nodes only when it is started by hand: run these commands, then add the "
    "cluster by its address. FIRST_NODE stands for the address of the first node."
)
OPTIONS = (
    ("adapters", "Adapters", 2, 64, "Adapters in memory; one of them is the untrained model."),
    ("most_rank", "Maximum rank", 1, 512, "Maximum rank of an adapter."),
    ("sequences", "Sampled together", 1, 1024,
     "Maximum number of sequences that are sampled together."),
    ("micro_batch", "Sequences per pass", 1, 256, "Sequences per forward and backward pass."),
    ("gpus", "GPUs", 1, 64,
     "GPUs that share each weight matrix (tensor parallelism); no effect without a GPU."),
)  # fmt: skip
DEFAULTS = SkyrlSettings(model="-")
NO_MODEL = "Choose a base model, or enter its name or folder."


class StartSheet(Sheet):
    """Sheet: `begin()` opens it for a new cluster, `change(name)` for new settings of a cluster.
    Emits `add_wanted()` for a cluster that is started by hand."""

    add_wanted = Signal()

    def __init__(self, session: Session, tasks: TaskScope, host: QWidget) -> None:
        super().__init__("Start SkyRL", host)
        self._session, self._tasks = session, tasks
        self._hosts, self._clusters = session.hosts, session.clusters
        self._starting = ""
        """Name of the cluster that is being started; empty if none."""
        self._editing = ""
        """Name of the listed cluster whose settings are edited; empty for a new one."""
        self.name = TextField("Name", NAME)
        self.place = ChoiceField("Where", [("", "This machine")])
        self._places: list[str] = []
        self.model = SuggestField("Base model", "Qwen/Qwen3-8B")
        self.nodes = SpinField("Nodes", 1, 64)
        self.options = {key: SpinField(label, low, high) for key, label, low, high, _ in OPTIONS}
        self._rows = {
            "name": FormRow("name", "Name", self.name, label_px=LABEL_PX,
                            help="Name of the cluster in Atelier."),
            "place": FormRow("place", "Where", self.place, label_px=LABEL_PX,
                             help="Machine on which SkyRL's server runs."),
            "model": FormRow("model", "Base model", self.model, label_px=LABEL_PX,
                             help="Name of a model, or a folder on that machine."),
            "nodes": FormRow("nodes", "Nodes", self.nodes, label_px=LABEL_PX,
                             help="Machines that share the model."),
        }  # fmt: skip
        self._more = [
            FormRow(key, label, self.options[key], label_px=LABEL_PX, help=words)
            for key, label, _, _, words in OPTIONS
        ]
        self._fold = Button("Options", "quiet", icon="chevron-right", height=28)
        self._result = Result()
        self._by_hand = Text(BY_HAND, "label", 400, "muted", wrap=True)
        self._commands = vbox(spacing=12)
        self._blocks: list[CommandBlock] = []
        self._start = Button("Start", "primary", icon="play", height=32)
        self._add = Button("Add a cluster", "outlined", icon="plus", height=32)
        self._ask = QTimer(self)
        self._ask.setSingleShot(True)
        self._ask.setInterval(ASK_MS)
        self._build()

    def begin(self) -> None:
        """Open the sheet for a new cluster; a start that is on its way is shown again."""
        if not self._starting:
            self._fill(None)
        self.open()
        if not self._starting:
            line = self.name.editor
            assert isinstance(line, QLineEdit)
            line.setFocus()
            line.selectAll()

    def change(self, name: str) -> None:
        """Open the sheet to start SkyRL of a listed cluster with other settings."""
        if (view := self._clusters.view(name)) is None:
            return
        if not self._starting:
            self._fill(view)
        self.open()
        if not self._starting:
            self.model.line.setFocus()

    def close_sheet(self) -> None:
        """Close; a start that is on its way goes on."""
        self._ask.stop()
        self._tasks.cancel("models")
        self._tasks.cancel("commands")
        super().close_sheet()

    # Form

    def _fill(self, view: ClusterView | None) -> None:
        spec = view.spec if view else None
        self._editing = spec.name if spec else ""
        self.set_title(f"Edit {self._editing}" if spec else "Start SkyRL")
        self._show_places(spec.host if spec else "")
        project = self._session.project
        config = project.view.config if project.view else None
        server = self._hosts.chosen(project.path)
        settings = (spec.skyrl if spec else None) or DEFAULTS
        self.name.set_value(spec.name if spec else self._free_name())
        self.place.set_value(spec.host if spec else server if self._hosts.view(server) else "")
        self.model.set_value(settings.model if spec else config.model.name if config else "")
        self.nodes.set_value(1)
        for key, field in self.options.items():
            field.set_value(getattr(settings, key))
        for row in (*self._rows.values(), *self._more):
            row.set_problem("")
        self._rows["nodes"].setVisible(spec is None)
        self._unfold(spec is not None)
        self._result.clear()
        self._show_progress()
        self._show_nodes()
        self._tasks.run("models", self._models(), self._offer, self._not_offered)

    async def _models(self) -> list[ModelInfo]:
        return await self._session.client.models()

    def _offer(self, models: list[ModelInfo]) -> None:
        self.model.set_choices([one.name for one in models])

    def _not_offered(self, problem: Problem) -> None:
        self._rows["model"].set_note(f"The list of models was not loaded. {problem.message}")

    def _free_name(self) -> str:
        number, name = 1, NAME
        while self._clusters.view(name) is not None:
            number += 1
            name = f"{NAME}-{number}"
        return name

    def _show_places(self, chosen: str) -> None:
        """Offer this machine and the servers, also a `chosen` one that is not in the list."""
        names = [view.spec.name for view in self._hosts.all]
        names += [chosen] if chosen and chosen not in names else []
        if names != self._places:  # a list that is open stays open
            self._places = names
            self.place.set_choices([("", "This machine"), *((name, name) for name in names)])

    def _show_nodes(self) -> None:
        """Show what fits the number of nodes: the start here, or the commands."""
        several = self.nodes.value() > 1
        self._by_hand.setVisible(several)
        self._start.setVisible(not several)
        self._add.setVisible(several)
        self._set_enabled()
        self._show_place()
        self._clear_commands()
        if several:
            self._request_commands()

    def _set_enabled(self) -> None:
        """Enable what can be entered: nothing during a start; name and machine only for a new
        cluster on one node."""
        line = self.name.editor
        assert isinstance(line, QLineEdit)
        if self._starting or self.nodes.value() > 1:
            line.deselect()
        for row in (*self._rows.values(), *self._more):
            row.setEnabled(not self._starting)
        if self._editing or self.nodes.value() > 1:
            for key in ("name", "place"):
                self._rows[key].setEnabled(False)

    def _show_place(self) -> None:
        """Show what the start does on the chosen machine."""
        name = str(self.place.value() or "")
        restarts = bool(self._editing) and self._runs_as(self._editing)
        self._start.set_words("Restart" if restarts else "Start")
        self._start.set_icon("rotate-ccw" if restarts else "play")
        words, tone = self._place_note(name) if self.nodes.value() == 1 else ("", "faint")
        self._rows["place"].set_note(words, tone)

    def _place_note(self, name: str) -> tuple[str, str]:
        """Return what the start does on a machine (empty: this one), and the tone."""
        others = (view.spec for view in self._clusters.all if view.spec.name != self._editing)
        on_it = (one.name for one in others if one.skyrl and one.host == name)
        if running := next((one for one in on_it if self._runs_as(one)), ""):
            return f"{name or HERE} already runs SkyRL, as {running}. Stop {running} first.", "warn"
        if not name:
            return "", "faint"
        if not self._hosts.connected(name):
            return f"{name} is not connected; the start connects it first.", "faint"
        return f"The model is uploaded if {name} does not have it.", "faint"

    def _runs_as(self, cluster: str) -> bool:
        view = self._clusters.view(cluster)
        return view is not None and is_up(view.server)

    def _settings(self) -> SkyrlSettings | None:
        model = self.model.value().strip()
        if not model:
            return None
        values = {key: field.value() for key, field in self.options.items()}
        return SkyrlSettings(model=model, **values)

    def _checked(self) -> tuple[str, StartCluster] | None:
        """Return name and request, or None with errors shown."""
        found: dict[str, str] = {}
        name, settings = self.name.value().strip(), self._settings()
        try:
            cluster_spec(name, "http://127.0.0.1:8000")
        except ConfigError as error:
            found["name"] = error.problem.message
        if name != self._editing and self._clusters.view(name) is not None:
            found["name"] = f"A cluster named {name} already exists."
        if settings is None:
            found["model"] = NO_MODEL
        for key in ("name", "model"):
            self._rows[key].set_problem(found.get(key, ""))
        if found or settings is None:
            self._rows[next(iter(found))].field.setFocus()
            return None
        return name, StartCluster(host=str(self.place.value() or ""), settings=settings)

    def _unfold(self, shown: bool) -> None:
        for row in self._more:
            row.setVisible(shown)
        self._fold.set_icon("chevron-down" if shown else "chevron-right")

    # Start

    def _press_start(self) -> None:
        if self._starting or self.nodes.value() > 1 or (checked := self._checked()) is None:
            return
        name, request = checked
        self._starting = name
        self._start.setFocus()  # the fields are disabled during the start
        self._result.clear()
        self._show_progress()
        self._clusters.start(
            name, request, partial(self._started, name, request.host), self._not_started
        )

    def _started(self, name: str, host: str, _: object) -> None:
        self._starting = ""
        self._show_progress()
        self._session.notice.emit(f"SkyRL starts on {host or HERE} as cluster {name}.")
        if self.is_open():
            self.close_sheet()

    def _not_started(self, problem: Problem) -> None:
        self._starting = ""
        self._show_progress()
        self._result.show_problem(problem, "SkyRL was not started")
        self.bring_into_view(self._result)
        if not self.is_open():
            self._session.problem_raised.emit(problem)

    @Slot()
    def _show_progress(self) -> None:
        """Show how far a start is: connection, upload."""
        busy = bool(self._starting)
        host = str(self.place.value() or "")
        self._start.set_busy(
            "Starting…" if busy else None, self._clusters.upload_share(host) if busy else None
        )
        self._set_enabled()
        if busy:
            self._result.show_progress("Starting SkyRL…", self._progress_words(host))

    def _progress_words(self, host: str) -> str:
        view = self._hosts.view(host) if host else None
        if view is None:
            return ""
        if view.state == "connected" and view.tick is not None:
            return tick_words(view.tick)
        return "" if view.state == "connected" else self._hosts.start_words(host)

    @Slot()
    def _hosts_changed(self) -> None:
        if not self.is_open():
            return
        self._show_places(str(self.place.value() or ""))
        if self._starting:
            self._show_progress()
        else:
            self._show_place()

    @Slot()
    def _clusters_changed(self) -> None:
        if self.is_open() and not self._starting:
            self._show_place()

    # Commands for several nodes

    def _request_commands(self) -> None:
        settings = self._settings()
        if settings is None:
            self._tasks.cancel("commands")
            self._clear_commands()
            self._rows["model"].set_problem(NO_MODEL)
            return
        request = LaunchRequest(settings=settings, nodes=self.nodes.value())
        self._tasks.run(
            "commands", self._clusters.launch_commands(request), self._show_commands,
            partial(self._result.show_problem, title="No commands"),
        )  # fmt: skip

    def _show_commands(self, found: LaunchCommands) -> None:
        self._result.clear()
        shown = [(block.title, block.command) for block in self._blocks]
        if shown == [(one.title, one.command) for one in found.commands]:
            return
        self._clear_commands()
        self._blocks = [CommandBlock(one.title, one.command) for one in found.commands]
        add(self._commands, *self._blocks)

    def _clear_commands(self) -> None:
        for block in self._blocks:
            self._commands.removeWidget(block)
            block.hide()
            block.deleteLater()
        self._blocks = []

    # Layout

    def _build(self) -> None:
        words = Text(WORDS, "label", 400, "muted", wrap=True)
        add(self.body, words, *self._rows.values())
        self.body.addWidget(self._fold, 0, Qt.AlignmentFlag.AlignLeft)
        add(self.body, *self._more, self._by_hand, self._commands, self._result, STRETCH)
        add(self.foot, STRETCH, self._add, self._start)
        self._fold.clicked.connect(lambda: self._unfold(self._more[0].isHidden()))
        self._start.clicked.connect(self._press_start)
        self._add.clicked.connect(self.add_wanted)
        self._ask.timeout.connect(self._request_commands)
        for row in (*self._rows.values(), *self._more):
            row.edited.connect(self._edited)
        name = self.name.editor
        assert isinstance(name, QLineEdit)
        for line in (name, self.model.line):
            line.returnPressed.connect(self._press_start)
        self._hosts.changed.connect(self._hosts_changed)
        self._clusters.changed.connect(self._clusters_changed)

    def _edited(self, key: str, value: Any) -> None:
        """Remove messages that no longer fit the entered values."""
        if key in self._rows and self._rows[key].problem():
            self._rows[key].set_problem("")
        self._result.clear()
        if key == "nodes":
            self._show_nodes()
        elif key == "place":
            self._show_place()
        elif self.nodes.value() > 1:
            self._ask.start()
