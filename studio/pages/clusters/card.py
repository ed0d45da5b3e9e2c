"""Settings card with the clusters: test, edit, start, stop and remove each, and add one."""

from functools import partial

from PySide6.QtCore import Signal, Slot
from PySide6.QtWidgets import QWidget

from studio.pages.clusters.rows import ClusterRowView
from studio.services.clusters import Clusters
from studio.services.notifications import Choice, ask
from studio.store.servers.cluster_rows import place_of
from studio.theme.plain_tooltips import set_tip
from studio.widgets.cards.card import Card
from studio.widgets.controls.buttons import Button
from studio.widgets.text.text import Text

NONE = (
    "No clusters yet. A cluster is a server with Tinker's API, hosted or your own: it samples and "
    "trains, while the training loop, judges, labels and results stay on this machine. Start SkyRL "
    "runs one on this machine or on a server of yours."
)
REMOVAL = (
    "Its address and its stored API key are deleted here; nothing is changed on the cluster. Not "
    "possible while a run uses it."
)
STOPPED = (
    "SkyRL is stopped, and its settings are deleted here; its checkpoints stay on {place}. Not "
    "possible while a run uses it."
)
UNKNOWN = (
    "Its settings are deleted here. {place} is not connected: if SkyRL runs there, it goes on. "
    "Connect {place} first to stop it."
)


class ClustersCard(Card):
    """Card of clusters; emits `edit_wanted(name)`, `add_wanted()` and `start_wanted()`."""

    edit_wanted = Signal(str)
    add_wanted = Signal()
    start_wanted = Signal()

    def __init__(self, clusters: Clusters, parent: QWidget | None = None) -> None:
        super().__init__(
            "Clusters", "train with a server that has Tinker's API", padding=16, parent=parent
        )
        self._clusters = clusters
        self.rows: dict[str, ClusterRowView] = {}
        self._none = Text(NONE, "body", tone="muted", wrap=True)
        self._problem = Text("", "label", 400, "bad", wrap=True, selectable=True)
        self._add = Button("Add a cluster", "outlined", icon="plus", height=28)
        self._add.clicked.connect(self.add_wanted)
        self._start = Button("Start SkyRL…", "outlined", icon="play", height=28)
        self._start.clicked.connect(self.start_wanted)
        set_tip(self._start, "Start SkyRL's server on this machine or a server of yours")
        self.setFocusProxy(self._add)
        assert self.header is not None
        self.header.add_right(self._start)
        self.header.add_right(self._add)
        self.body.setSpacing(0)
        self.body.addWidget(self._none)
        self.body.addWidget(self._problem)
        clusters.changed.connect(self.show_clusters)
        self.show_clusters()

    @Slot()
    def show_clusters(self) -> None:
        """Update the rows; rows of remaining clusters are reused to keep the focus."""
        names = [view.spec.name for view in self._clusters.all]
        if names != list(self.rows):
            self._make(names)
        for view in self._clusters.all:
            name, host = view.spec.name, view.spec.host
            share = self._clusters.upload_share(host) if self._clusters.starting(name) else None
            row = self._clusters.row(view)
            self.rows[name].show_row(row, self._clusters.busy_with(name), share)
        problem = self._clusters.problem
        self._problem.set_words(f"{problem.message} {problem.hint}".strip() if problem else "")
        self._problem.setVisible(problem is not None)
        self._none.setVisible(not names and problem is None)

    def _make(self, names: list[str]) -> None:
        had_focus = any(row.isAncestorOf(self.focusWidget() or self) for row in self.rows.values())
        for row in self.rows.values():
            self.body.removeWidget(row)
            row.hide()
            row.deleteLater()
        self.rows = {}
        for place, name in enumerate(names):
            row = self.rows[name] = ClusterRowView(place == 0)
            row.pressed.connect(partial(self._pressed, name))
            self.body.addWidget(row)
        if had_focus:
            self._add.setFocus()

    def _pressed(self, name: str, verb: str) -> None:
        match verb:
            case "edit":
                self.edit_wanted.emit(name)
            case "test":
                self._clusters.test(name)
            case "start":
                self._clusters.restart(name)
            case "stop":
                self._clusters.stop(name)
            case "connect":
                self._clusters.connect_host(name)
            case _:
                self._clusters.tasks.run("sure", self._confirm_removal(name))

    async def _confirm_removal(self, name: str) -> None:
        view, words = self._clusters.view(name), REMOVAL
        if view is not None and view.spec.skyrl is not None:
            words = STOPPED if view.server is not None else UNKNOWN
            words = words.format(place=place_of(view.spec))
        choices = [Choice("", "Cancel"), Choice("yes", "Remove", "danger", default=True)]
        answer, _ = await ask(self.window(), f"Remove {name} from the list?", words, choices)
        if answer == "yes":
            self._clusters.remove(name)
