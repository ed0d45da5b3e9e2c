"""Engine menu: the machine or cluster on which the open project trains, and the state of each."""

from functools import partial

from PySide6.QtCore import QObject, Slot
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QMenu

from studio.actions.actions import Actions
from studio.link.engine_state import LinkState
from studio.main_window import PROJECTLESS, MainWindow
from studio.services.session import Session
from studio.store.servers.cluster_rows import kind_of
from studio.text import formatting
from studio.theme.plain_tooltips import set_tip
from studio.widgets.tables.status_dot import dot_icon

PILL = {"starting": "reconnecting"}
HERE = "This machine"
MARK = "\ttrains here"


class EngineSwitcher(QObject):
    """Engine menu of the window, opened by the pill in the header or the keyboard."""

    def __init__(self, window: MainWindow, session: Session, actions: Actions) -> None:
        super().__init__(window)
        self._window, self._session, self._actions = window, session, actions
        session.engine_changed.connect(self.show_pill)
        session.hosts.changed.connect(self.show_pill)
        session.clusters.changed.connect(self.show_pill)
        session.project_changed.connect(self.show_pill)
        window.page_shown.connect(self.show_pill)
        window.header.engine_requested.connect(self.open_menu)

    @property
    def project(self) -> str:
        """Return the path of the project whose engine is shown; empty on pages without a
        project."""
        return "" if self._window.page in PROJECTLESS else self._session.project.path

    @property
    def cluster(self) -> str:
        """Return the name of the cluster on which the shown project trains; empty is none."""
        return self._session.cluster if self.project else ""

    @Slot()
    def show_pill(self) -> None:
        link, pill = self._session.feed.link, self._window.header.pill
        name = self._session.hosts.chosen(self.project)
        if name and link.contact == "connected":
            words = self._session.hosts.words(name)
            pill.set_engine(f"{name} · {words.short}", words.dot)
            set_tip(pill, f"{name} · {words.text}")
        elif self.cluster and link.contact == "connected":
            state, dot = self._cluster_words(self.cluster)
            view = self._session.clusters.view(self.cluster)
            pill.set_engine(f"{self.cluster} · {kind_of(view, placed=True)}", dot)
            set_tip(pill, f"{self.cluster} · {state}")
        else:
            pill.set_engine(link.words, PILL.get(link.contact, link.contact))
            set_tip(pill, "")

    @Slot()
    def open_menu(self) -> None:
        menu = QMenu(self._window)
        menu.aboutToHide.connect(menu.deleteLater)
        self._add_engines(menu)
        menu.addSeparator()
        for action in ("servers.add", "clusters.add", "servers.open", "clusters.open"):
            menu.addAction(self._actions[action])
        menu.addSeparator()
        for words in _facts(self._session.feed.link):
            menu.addAction(words).setEnabled(False)
        menu.addAction(self._actions["engine.start"])
        pill = self._window.header.pill
        menu.popup(pill.mapToGlobal(pill.rect().bottomLeft()))
        self.menu = menu

    def _add_engines(self, menu: QMenu) -> None:
        """Add all engines. Selecting one sets it for the open project; without a project, it is
        connected."""
        project, hosts, link = self.project, self._session.hosts, self._session.feed.link
        chosen = hosts.chosen(project) if project else None
        here = menu.addAction(dot_icon(PILL.get(link.contact, link.contact)), link.words)
        here.triggered.connect(partial(self._choose, ""))
        self._mark(here, chosen == "" and not self.cluster)
        for view in hosts.all:
            name = view.spec.name
            words = hosts.words(name)
            text = f"{name} · {words.text}".replace("&", "&&")
            action = menu.addAction(dot_icon(words.dot), text)
            action.triggered.connect(partial(self._choose, name))
            self._mark(action, chosen == name)
        if chosen and hosts.view(chosen) is None:
            gone = menu.addAction(dot_icon("gone"), f"{chosen} · not in the list")
            gone.setEnabled(False)
            self._mark(gone, True)
        self._add_clusters(menu)

    def _add_clusters(self, menu: QMenu) -> None:
        """Add all clusters, which can be selected for a project only."""
        names = [view.spec.name for view in self._session.clusters.all]
        for name in names:
            words, dot = self._cluster_words(name)
            kind = kind_of(self._session.clusters.view(name), placed=False)
            text = f"{name} · {kind}, {words}".replace("&", "&&")
            action = menu.addAction(dot_icon(dot), text)
            action.triggered.connect(partial(self._choose_cluster, name))
            action.setEnabled(bool(self.project))
            self._mark(action, self.cluster == name)
        if self.cluster and self.cluster not in names:
            gone = menu.addAction(dot_icon("gone"), f"{self.cluster} · no such cluster")
            gone.setEnabled(False)
            self._mark(gone, True)

    def _cluster_words(self, name: str) -> tuple[str, str]:
        """Return state and dot of a cluster."""
        clusters = self._session.clusters
        view = clusters.view(name)
        if view is None:
            return "not in the list", "gone"
        row = clusters.row(view)
        return row.words, row.dot

    def _mark(self, action: QAction, chosen: bool) -> None:
        if chosen:
            action.setText(action.text() + MARK)

    def _choose(self, name: str, _: bool = False) -> None:
        if self.project:
            self._session.choose_place(name, "")
        elif name:
            self._session.hosts.act(name, "connect")
        else:
            self._actions.trigger("engine.start")

    def _choose_cluster(self, name: str, _: bool = False) -> None:
        self._session.choose_place("", name)


def _facts(link: LinkState) -> list[str]:
    if link.info is None:
        return []
    memory = formatting.size(link.info.memory_bytes)
    total = formatting.size(link.info.memory_total_bytes)
    facts = [
        f"{HERE}: engine {link.info.version} · Python {link.info.python}",
        f"{memory} of {total} used",
    ]
    if link.latency_s is not None:
        facts[1] += f" · latency {formatting.duration(link.latency_s)}"
    return facts
