"""Settings cards of Python environments: engines, trackers and others."""

import asyncio
from functools import partial

from PySide6.QtWidgets import QWidget

from engine.protocol.problems import Problem
from engine.protocol.records.machine.environments import EnvironmentAction, EnvironmentList
from studio.pages.environment_row import EnvironmentRow
from studio.runtime.tasks import TaskScope
from studio.services.session import Session
from studio.store.projects.environments import Row, built_in_row, row_of
from studio.theme.plain_tooltips import set_tip
from studio.widgets.cards.card import Card
from studio.widgets.controls.buttons import Button
from studio.widgets.layouts import add, vbox
from studio.widgets.text.text import Text

POLL_S = 0.5


class EnginesCards(QWidget):
    """Two cards over one list of environments: engines and others."""

    def __init__(self, session: Session, tasks: TaskScope, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._session, self._tasks = session, tasks
        self._found: EnvironmentList | None = None
        self._rows: dict[str, EnvironmentRow] = {}
        self._engines = Card("Engines", "one run trains at a time; others wait", padding=16)
        words = "installed on first use; tracker environments on request"
        self._others = Card("Other environments", words, padding=16)
        self._back = Button("Roll back", "quiet", icon="undo-2", height=24)
        self._words = Text("Not loaded yet.", "body", tone="faint", wrap=True)
        self._by_hand = Text(
            ("A custom interpreter is set above and takes precedence over the engine chosen here."),
            "caption",
            tone="warn",
            wrap=True,
        )
        self._build()
        session.settings.changed.connect(lambda _: self._show_by_hand())
        self._show_by_hand()

    def look(self) -> None:
        """Load the list of engines, and poll it while a job (e.g. an installation) is running."""
        self._words.set_tone("faint")
        if not self._session.connected:
            self._say("Not connected. Installed engines appear once an engine is running.")
        else:
            self._tasks.run("environments", self._watch(), failed=self._failed)

    def rest(self) -> None:
        """Stop polling the list of engines while hidden; jobs continue."""
        self._tasks.cancel("environments")

    def _build(self) -> None:
        column = vbox(parent=self, spacing=12)
        assert self._engines.header is not None
        self._engines.header.add_right(self._back)
        self._back.setVisible(False)
        self._back.clicked.connect(self._roll_back)
        for card in (self._engines, self._others):
            card.body.setSpacing(0)
            column.addWidget(card)
        add(self._engines.body, self._words, self._by_hand)
        self._others.setVisible(False)

    async def _watch(self) -> None:
        while True:
            found = await self._session.client.environments()
            self._show(found)
            if all(one.action is None and not one.elsewhere for one in found.environments):
                return
            await asyncio.sleep(POLL_S)

    def _show(self, found: EnvironmentList) -> None:
        self._found = found
        if found.problem:
            self._failed(found.problem)
        elif self._words.property("tone") != "bad":  # keep an error until the next action
            self._say("")
        self._row(built_in_row(found), self._engines)
        for view in found.environments:
            self._row(row_of(view, found), self._engines if view.engine else self._others)
        self._others.setVisible(True)
        previous = found.choice.previous
        self._back.setVisible(previous is not None)
        if previous is not None:
            names = {one.name: one.title for one in found.environments}
            title = names.get(previous.name, "Built-in engine")
            set_tip(self._back, f"Use the previous engine again: {title}")

    def _row(self, row: Row, card: Card) -> None:
        shown = self._rows.get(row.name)
        if shown is None:
            first = not any(one.parent() is card.body.parentWidget() for one in self._rows.values())
            shown = self._rows[row.name] = EnvironmentRow(first)
            shown.pressed.connect(partial(self._press, row.name))
            place = card.body.count() - (2 if card is self._engines else 0)
            card.body.insertWidget(place, shown)
        shown.show_row(row)

    def _press(self, name: str, verb: str) -> None:
        self._say("")
        if verb == "use":
            self._use(name)
        else:
            self._tasks.run("act", self._act(name, verb), failed=self._failed)  # type: ignore[arg-type]

    async def _act(self, name: str, action: EnvironmentAction) -> None:
        self._show(await self._session.client.act_on_environment(name, action))
        self.look()

    def _use(self, name: str, home: str = "") -> None:
        self._tasks.run("act", self._switch(name, home), failed=self._failed)

    async def _switch(self, name: str, home: str) -> None:
        await self._session.client.use_engine(name, home)
        self._session.restart_engine()

    def _roll_back(self) -> None:
        self._say("")
        if self._found is not None and (previous := self._found.choice.previous):
            self._use(previous.name, previous.home)

    def _failed(self, problem: Problem) -> None:
        self._say(f"{problem.message} {problem.hint}".strip(), "bad")

    def _say(self, words: str, tone: str = "faint") -> None:
        self._words.set_words(words)
        self._words.set_tone(tone)
        self._words.setVisible(bool(words))

    def _show_by_hand(self) -> None:
        self._by_hand.setVisible(bool(self._session.settings.current.engine_python))
