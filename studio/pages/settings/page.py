"""Settings page: sections of engines, servers, clusters, this machine, API keys, look, keyboard."""

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import Slot
from PySide6.QtWidgets import QFileDialog, QHBoxLayout, QStackedWidget, QWidget

from engine.protocol.problems import Problem
from engine.protocol.records.machine.hardware import Check
from studio.actions.actions import Actions
from studio.link.engine_state import LinkState
from studio.pages.clusters.card import ClustersCard
from studio.pages.page import Page, scrolled
from studio.pages.servers.card import ServersCard
from studio.pages.settings.api_keys import judge_keys_card, tracker_keys_card
from studio.pages.settings.engines import EnginesCards
from studio.pages.settings.section_list import Section, SectionList
from studio.pages.settings.shortcuts import ShortcutList
from studio.services.session import Session
from studio.services.settings import login_name
from studio.text import formatting
from studio.widgets.cards.card import Card
from studio.widgets.cards.check_line import CheckLine
from studio.widgets.cards.key_values import KeyValues
from studio.widgets.controls.buttons import Button
from studio.widgets.controls.segmented import Segmented
from studio.widgets.controls.toggle import Toggle
from studio.widgets.forms.form import FormRow
from studio.widgets.forms.form_fields import PathField, TextField
from studio.widgets.layouts import STRETCH, add, hbox, vbox
from studio.widgets.text.text import Text

MODES = ("system", "dark", "light")
WIDEST = 880
SECTIONS = (
    Section("engines", "Engines", "cpu"),
    Section("servers", "Remote servers", "server"),
    Section("clusters", "Clusters", "globe"),
    Section("machine", "This machine", "search-check"),
    Section("keys", "API keys", "key-round"),
    Section("labels", "Labels", "user-round-check"),
    Section("appearance", "Appearance", "sun"),
    Section("notifications", "Notifications", "bell"),
    Section("shortcuts", "Keyboard", "keyboard"),
)


class SettingsPage(Page):
    """Settings page; changes apply immediately."""

    def __init__(
        self, session: Session, actions: Actions, workspace: Path, parent: QWidget | None = None
    ) -> None:
        super().__init__(session, parent)
        self._actions, self._workspace = actions, workspace
        self._facts = KeyValues(2)
        self._checks: list[CheckLine] = []
        self._contact = ""
        self._api_keys = (judge_keys_card(self.tasks), tracker_keys_card(self.tasks))
        self._engines = EnginesCards(session, self.tasks)
        self.servers = ServersCard(session.hosts)
        self.clusters = ClustersCard(session.clusters)
        self._build()
        session.engine_changed.connect(self._show_engine)
        session.settings.changed.connect(self._show_look)
        self._show_look()
        self._show_engine(session.feed.link)

    def enter(self) -> None:
        self._show_engine(self.session.feed.link)
        for card in self._api_keys:
            card.look()
        self._engines.look()
        if self.session.connected:
            self.session.clusters.refresh()
        self.session.clusters.watch(True)

    def leave(self) -> None:
        self.session.clusters.watch(False)
        self._engines.rest()

    def show_section(self, key: str) -> None:
        """Show a section: a key of SECTIONS."""
        self.sections.select(key)

    def show_servers(self) -> None:
        """Show the section of remote servers and focus it."""
        self.show_section("servers")
        self.servers.setFocus()

    def show_clusters(self) -> None:
        """Show the section of clusters and focus it."""
        self.show_section("clusters")
        self.clusters.setFocus()

    def check(self) -> None:
        """Show the section "This machine" and check the requirements for training."""
        self.show_section("machine")
        if not self._check_button.is_busy():
            self._check()

    def _build(self) -> None:
        cards: dict[str, tuple[QWidget, ...]] = {
            "engines": (self._engine_card(), self._engines),
            "servers": (self.servers,),
            "clusters": (self.clusters,),
            "machine": (self._doctor_card(),),
            "keys": self._api_keys,
            "labels": (self._label_card(),),
            "appearance": (self._look_card(),),
            "notifications": (self._notification_card(),),
            "shortcuts": (self._keys_card(),),
        }
        self.sections = SectionList(SECTIONS, "Sections of the settings")
        self._stack = QStackedWidget()
        for section in SECTIONS:
            self._stack.addWidget(_section(cards[section.key], scrolls=section.key != "shortcuts"))
        left = vbox((self.sections, 1), margins=(16, 20, 0, 20))
        hbox(left, (self._stack, 1), parent=self, spacing=0)
        keys = [section.key for section in SECTIONS]
        self.sections.chosen.connect(lambda key: self._stack.setCurrentIndex(keys.index(key)))

    def _look_card(self) -> Card:
        card = Card("Appearance", padding=16)
        self._mode = Segmented(["System", "Dark", "Light"], "Theme")
        self._motion = Toggle("Reduce motion")
        self._mode.chosen.connect(lambda i: self.session.settings.update(theme=MODES[i]))
        self._motion.toggled.connect(lambda on: self.session.settings.update(reduced_motion=on))
        card.body.setSpacing(12)
        line = hbox(Text("Theme", "label", 500, "muted"), 16, self._mode, STRETCH)
        add(card.body, line, self._motion)
        return card

    def _label_card(self) -> Card:
        card = Card("Labels", padding=16)
        self._annotator = TextField("Annotator", placeholder=login_name())
        self._annotator.set_value(self.session.settings.current.annotator)
        self._annotator.edited.connect(
            lambda value: self.session.settings.update(annotator=str(value or "").strip())
        )
        help_text = "Name under which your labels are stored. Empty: your login name."
        row = FormRow("annotator", "Annotator", self._annotator, help=help_text)
        add(card.body, row, Text(help_text, "caption", tone="faint", wrap=True))
        return card

    def _notification_card(self) -> Card:
        card = Card("Notifications", padding=16)
        self._desktop = Toggle("Show desktop notifications")
        self._desktop.toggled.connect(
            lambda on: self.session.settings.update(desktop_notifications=on)
        )
        words = (
            "A notification appears when a run finishes, fails, waits for your review or raises an "
            "alert while this window is in the background. Alert conditions are set per project, "
            "under Setup → Advanced → Alerts."
        )
        card.body.setSpacing(12)
        add(card.body, self._desktop, Text(words, "label", 400, "muted", wrap=True))
        return card

    def _engine_card(self) -> Card:
        card = Card(
            "Engine",
            "training runs in a separate process; closing the window does not stop it",
            padding=16,
        )
        card.body.setSpacing(12)
        card.body.addWidget(self._facts)
        python = PathField("Engine interpreter", "interpreter of the selected engine")
        python.set_value(self.session.settings.current.engine_python)
        python.edited.connect(lambda value: self._set_python(str(value or "")))
        python.browse_requested.connect(self._choose_python)
        self._python = python
        card.body.addWidget(
            FormRow(
                "engine_python",
                "Interpreter",
                python,
                help="Python interpreter with PyTorch; takes precedence over the engines below.",
            )
        )
        workspace = TextField("Workspace", mono=True)
        workspace.set_value(str(self._workspace))
        row = FormRow(
            "workspace",
            "Workspace",
            workspace,
            help="Folder of your projects. To change it, start Atelier with --workspace.",
        )
        row.setEnabled(False)
        card.body.addWidget(row)
        line = QHBoxLayout()
        for action, words, icon in (
            ("engine.start", "Reconnect", "plug-zap"),
            ("engine.restart", "Restart the engine", "rotate-ccw"),
        ):
            button = Button(words, "outlined", icon=icon)
            button.clicked.connect(lambda _=False, a=action: self._actions.trigger(a))
            line.addWidget(button)
        add(
            line,
            Text(
                "An active run stops at its last checkpoint and can be resumed.",
                "caption",
                tone="faint",
            ),
            STRETCH,
        )
        card.body.addLayout(line)
        return card

    def _doctor_card(self) -> Card:
        card = Card("This machine", "checks the requirements for training", padding=16)
        self._check_button = Button("Check this machine", "outlined", icon="search-check")
        self._check_button.clicked.connect(self._check)
        assert card.header is not None
        card.header.add_right(self._check_button)
        self._check_list = vbox(spacing=2)
        self._hint = Text("Not checked yet.", "body", tone="faint", wrap=True)
        add(card.body, self._check_list, self._hint)
        return card

    def _keys_card(self) -> Card:
        card = Card("Keyboard shortcuts", "press ? anywhere to show the shortcuts", padding=0)
        card.body.addWidget(ShortcutList())
        return card

    @Slot()
    def _show_look(self) -> None:
        current = self.session.settings.current
        self._mode.set_index(MODES.index(current.theme))
        self._motion.setChecked(current.reduced_motion)
        self._desktop.setChecked(current.desktop_notifications)

    @Slot(object)
    def _show_engine(self, link: LinkState) -> None:
        info = link.info
        words = {"connected": "Connected", "starting": "Starting…", "gone": "Not reachable"}
        values = [("State", words.get(link.contact, link.words))]
        if info is not None:
            total = formatting.size(info.memory_total_bytes)
            used = f"{formatting.size(info.memory_bytes)} of {total}"
            values += [
                ("Device", info.device),
                ("Version", f"{info.version} · Python {info.python}"),
                ("Memory", used),
                ("Process", str(info.pid)),
                ("Active runs", str(info.living_runs)),
            ]
        self._facts.set_values(values)
        if link.contact != self._contact:
            self._contact = link.contact
            if self.isVisible():
                self._engines.look()

    def _set_python(self, path: str) -> None:
        self.session.settings.update(engine_python=path)
        self.session.link.python = path or None
        self.session.notice.emit("The engine uses this interpreter after its next start.")

    def _choose_python(self) -> None:
        dialog = QFileDialog(self, "Choose a Python interpreter")
        dialog.fileSelected.connect(self._python.set_value)
        dialog.fileSelected.connect(self._set_python)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def _check(self) -> None:
        self._check_button.set_busy("Checking…")
        job = self._doctor()
        self.tasks.run("doctor", job, self._show_checks, self._check_failed)

    async def _doctor(self) -> list[Check]:
        return await self.session.client.doctor()

    def _check_failed(self, problem: Problem) -> None:
        self._check_button.set_busy(None)
        self._hint.setVisible(True)
        self._hint.set_words(f"{problem.message} {problem.hint}")

    def _show_checks(self, checks: list[Check]) -> None:
        self._check_button.set_busy(None)
        for line in self._checks:
            self._check_list.removeWidget(line)
            line.deleteLater()
        self._checks = [CheckLine(c.state, f"{c.name}: {c.words}") for c in checks]
        add(self._check_list, *self._checks)
        hints = [check.hint for check in checks if check.hint]
        self._hint.setVisible(bool(hints))
        self._hint.set_words("\n".join(hints))


def _section(cards: Sequence[QWidget], scrolls: bool) -> QWidget:
    """Lay out the cards of a section; one that does not scroll fills the height."""
    content = QWidget()
    column = vbox(parent=content, margins=(16, 20, 24, 24), spacing=12)
    for card in cards:
        card.setMaximumWidth(WIDEST)
        column.addWidget(card, 0 if scrolls else 1)
    if not scrolls:
        return content
    column.addStretch(1)
    return scrolled(content)
