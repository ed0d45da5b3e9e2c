"""Side-by-side chat: the same prompt to several models, streamed responses, optional blind vote."""

import random
import uuid
from collections.abc import Callable, Sequence
from contextlib import aclosing

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QMenu, QWidget

from engine.protocol.problems import Problem, Refused
from engine.protocol.records.judging import Verdict
from engine.protocol.records.runs import Scenario
from engine.protocol.requests.arena import AskArena, Tally
from engine.protocol.requests.runs import TryJudge
from studio.pages.checkpoints.chat_column import SideColumn
from studio.runtime.tasks import TaskScope
from studio.services.session import Session
from studio.store.runs.chat import ENOUGH_VOTES, Talk, TurnPrompt
from studio.text import formatting
from studio.widgets.cards.card import Card
from studio.widgets.controls.buttons import Button, IconButton
from studio.widgets.controls.inputs import LineInput
from studio.widgets.controls.toggle import Toggle
from studio.widgets.layouts import add, hbox
from studio.widgets.text.text import Text
from studio.widgets.transcript.items import plain

TOKENS = ("muted", "plot-1", "plot-3", "plot-4")
LETTERS = "ABCD"
SHOWN_SCENARIOS = 30
TEMPERATURES = (
    (0.0, "Temperature 0: greedy decoding"),
    (0.3, "Temperature 0.3"),
    (0.7, "Temperature 0.7"),
    (1.0, "Temperature 1: as in training"),
)
REPAINT_MS = 66
PROMPT_TOKENS = 2048
"""Token limit of a response to the prompt of a turn."""
MARGIN = 12


class ArenaCard(Card):
    """Card with the side-by-side chat of the models selected by `show_models`."""

    problem_raised = Signal(object)
    tally_changed = Signal()
    edit_wanted = Signal(object)
    """Emitted with the prompt that the user wants to edit."""

    def __init__(self, session: Session, parent: QWidget | None = None) -> None:
        super().__init__("Side-by-side chat", " ", padding=0, parent=parent)
        self._session, self._talk, self._tasks = session, Talk(), TaskScope(self)
        self.before: Callable[[Callable[[], None]], None] = lambda go_on: go_on()
        """Hook set by the page: fetches missing checkpoint files, then calls its argument."""
        self._words: dict[str, str] = {}
        self._scenarios: list[Scenario] = []
        self._tally: Tally | None = None
        self._seed = 7
        self._columns: list[SideColumn] = []
        self._nothing = Text("", "body", 400, "muted", wrap=True)
        self._nothing.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._room = hbox(spacing=0)
        self._ask = LineInput("Prompt", "Send")
        self._try = Button("Run a scenario", "outlined", icon="play", height=32, menu_arrow=True)
        self._left = Button("Left", "outlined", icon="arrow-left", height=32)
        self._tie = Button("Tie", "outlined", height=32)
        self._right = Button("Right", "outlined", icon="arrow-right", height=32)
        self._judge = Button("Judge", "outlined", icon="scale", height=32)
        self._stop = Button("Stop", "outlined", icon="square", height=32)
        self._blind = Toggle("Blind", "Blind: hide model names until the vote")
        self._temperature = 0.7
        self._how = Button("", "quiet", icon="dices", height=24, menu_arrow=True)
        self._anew = IconButton("rotate-ccw", "Start a new chat", size=24)
        self._answer = Button("Answer", "primary", icon="play", height=32)
        self._edit = Button("Edit prompt", "quiet", icon="pencil", height=24)
        self._repaint = QTimer(self)
        self._repaint.setSingleShot(True)
        self._repaint.setInterval(REPAINT_MS)
        self._build()
        self._wire()
        self._show()

    async def close_tasks(self) -> None:
        await self._tasks.close()

    def show_models(self, names: Sequence[str], words: dict[str, str]) -> None:
        """Set the models of the chat, by name; a change of `names` starts a new chat.
        `words`: model name → displayed title."""
        self._words = words
        if [side.name for side in self._talk.sides] != list(names):
            self._begin(names)

    @property
    def has_prompt(self) -> bool:
        """Whether the chat begins with a prompt from a trajectory."""
        return self._talk.prompt is not None

    def show_prompt(self, prompt: TurnPrompt | None) -> None:
        """Begin a new chat with a prompt that waits for responses; None: an empty chat."""
        self._talk.prompt = prompt
        self._begin([side.name for side in self._talk.sides])

    def load(self) -> None:
        """Load the scenarios of the open project and the tally of its votes."""
        path = self._session.project.path
        if path and self._session.connected:
            self._tasks.run("scenarios", self._scenarios_of(path))
            self._tasks.run("tally", self._session.client.tally(path), self._show_tally)

    # Sending

    def _begin(self, names: Sequence[str]) -> None:
        """Start a new chat and drop pending responses of the previous one."""
        self._tasks.cancel("ask")
        order = list(range(len(names)))
        if self._blind.isChecked():
            random.shuffle(order)
        self._talk.begin(names, order)
        self._show()

    def _put(self) -> None:
        if self._ask.text().strip() and not self._talk.asking and self._talk.sides:
            self.before(self._put_now)

    def _answer_prompt(self) -> None:
        if self._talk.is_unanswered:
            self.before(self._answer_now)

    def _answer_now(self) -> None:
        if self._talk.is_unanswered:
            self._shuffle()
            self._send(chats=self._talk.answer(), max_tokens=PROMPT_TOKENS)

    def _put_now(self) -> None:
        question = self._ask.text().strip()
        if not question or self._talk.asking or not self._talk.sides:
            return
        self._ask.clear()
        self._shuffle()
        chats = self._talk.ask(question)
        self._send(chats=chats, max_tokens=512)

    def _try_scenario(self, scenario: Scenario) -> None:
        if not self._talk.asking and self._talk.sides:
            self.before(lambda: self._try_now(scenario))

    def _try_now(self, scenario: Scenario) -> None:
        self._shuffle()
        self._talk.try_scenario()
        self._send(scenario=scenario.id)

    def _shuffle(self) -> None:
        """In blind mode, shuffle the sides before the first prompt and after a vote."""
        fresh = not any(side.messages for side in self._talk.sides)
        if self._blind.isChecked() and (fresh or self._talk.voted):
            random.shuffle(self._talk.order)

    def _send(self, **fields: object) -> None:
        prompt = self._talk.prompt
        request = AskArena.model_validate(
            {
                "project": self._session.project.path,
                "models": [side.name for side in self._talk.sides],
                "seed": self._seed,
                "temperature": self._temperature,
                "tools": prompt.tools if prompt and "chats" in fields else [],
                **fields,
            }
        )
        self._tasks.run("ask", self._listen(request), failed=self._failed)
        self._show()

    async def _listen(self, request: AskArena) -> None:
        await self._session.lend_keys([name for name in request.models if "/" in name])
        async with aclosing(self._session.client.ask_arena(request)) as ticks:
            async for tick in ticks:
                self._talk.take(tick)
                self._repaint.start() if not self._repaint.isActive() else None
        self._show()

    def _failed(self, problem: Problem) -> None:
        self._talk.asking = False
        self._show()
        self.problem_raised.emit(problem)

    def _halt(self) -> None:
        self._tasks.cancel("ask")
        self._talk.asking = False
        self._show()

    # Judging and voting

    def _ask_judge(self) -> None:
        """Request judge scores; they are shown next to the responses and change no reward."""
        group, run_id = self._talk.group, self._talk.run_id
        if group is None:
            return
        place = (group.split, group.step, group.group)
        client, path = self._session.client, self._session.project.path

        async def work() -> list[Verdict]:
            await self._session.lend_keys()
            source = (await client.rubric(path)).source
            request = TryJudge(source=source, places=[place])
            async with aclosing(client.try_judge(run_id, request)) as answers:
                async for tried in answers:
                    if tried.problem is not None and not tried.after:
                        raise Refused(tried.problem)
            return (await client.siblings(run_id, *place)).verdicts

        self._judge.set_busy("Judging…")
        self._tasks.run("judge", work(), self._judged, failed=self._not_judged)

    def _judged(self, verdicts: list[Verdict]) -> None:
        self._talk.hear(verdicts)
        self._judge.set_busy(None)
        self._show()

    def _not_judged(self, problem: Problem) -> None:
        self._judge.set_busy(None)
        self.problem_raised.emit(problem)

    def _judge_calls(self) -> int:
        """Return the maximum number of judge calls; 0 without a judge."""
        view = self._session.project.view
        judge = view.config.judge if view and view.config else None
        return len(judge.models) * judge.passes if judge else 0

    def _vote(self, choice: str) -> None:
        if not self._talk.can_vote:
            return
        label = self._talk.vote(choice, uuid.uuid4().hex)
        run_id, path = self._talk.run_id, self._session.project.path

        async def store() -> Tally:
            await self._session.client.add_label(run_id, label)
            return await self._session.client.tally(path)

        self._tasks.run("vote", store(), self._show_tally, failed=self.problem_raised.emit)
        self._show()

    def _show_tally(self, tally: Tally) -> None:
        self._tally = tally
        self._show()
        self.tally_changed.emit()

    async def _scenarios_of(self, path: str) -> None:
        page = await self._session.client.scenarios(path, "validation", 0, SHOWN_SCENARIOS)
        self._scenarios = page.items
        self._show()

    def _scenario_menu(self) -> None:
        menu = QMenu(self)
        menu.aboutToHide.connect(menu.deleteLater)
        for one in self._scenarios:
            action = menu.addAction(one.title[:70].replace("&", "&&") or one.id)
            action.triggered.connect(lambda _=False, s=one: self._try_scenario(s))
        menu.popup(self._try.mapToGlobal(self._try.rect().topLeft()))

    # Display

    @property
    def _nameless(self) -> bool:
        return self._blind.isChecked() and not self._talk.voted

    def _show(self) -> None:
        talk = self._talk
        self._fit_columns(len(talk.sides))
        for place, column in zip(talk.order, self._columns, strict=True):
            side = talk.sides[place]
            letter = f"Model {LETTERS[talk.order.index(place)]}"
            name = letter if self._nameless else self._words.get(side.name, side.name)
            tone = "muted" if self._nameless or place == 0 else TOKENS[place]
            waits = talk.asking and side.attempt is None
            column.show_side(side, name, tone, self._nameless, waits)
        empty = not any(side.shown for side in talk.sides) and not talk.asking
        self._nothing.setVisible(empty)
        self._nothing.set_words(_empty_words(len(talk.sides)))
        for column in self._columns:
            column.setVisible(not empty)
        count = len(talk.sides)
        self._ask.setPlaceholderText(
            {0: "Send", 1: "Send", 2: "Send to both"}.get(count, ("Send to all"))
        )
        self._ask.setEnabled(count > 0)
        self._try.setEnabled(bool(self._scenarios) and count > 0 and not talk.asking)
        self._answer.setVisible(self.has_prompt and talk.is_unanswered)
        self._edit.setVisible(self.has_prompt)
        self._stop.setVisible(talk.asking)
        self._try.setVisible(not talk.asking)
        calls = self._judge_calls()
        self._judge.set_words("Judge", f"≤ {formatting.plural(calls, 'call')}")
        self._judge.setVisible(calls > 0 and count > 1)
        self._judge.setEnabled(talk.group is not None and not self._tasks.busy("judge"))
        for button in (self._left, self._tie, self._right):
            button.setVisible(count == 2)
            button.setEnabled(talk.can_vote)
        self._how.set_words(f"temperature {self._temperature:g}, seed {self._seed}")
        assert self.header is not None
        self.header.set_words(self._tally_words() or self._prompt_words())

    def _prompt_words(self) -> str:
        prompt = self._talk.prompt
        if prompt is None:
            return ""
        tools = formatting.plural(len(prompt.tools), "tool")
        return plain(f"{prompt.title}, {tools}" if prompt.tools else prompt.title)[:120]

    def _tally_words(self) -> str:
        tally = self._tally
        if tally is None or not tally.votes:
            return ""
        if self._blind.isChecked() and tally.votes < ENOUGH_VOTES:
            return f"{formatting.plural(tally.votes, 'vote')} · results after {ENOUGH_VOTES} votes"
        first = tally.pairs[0] if tally.pairs else None
        if first is None:
            return formatting.plural(tally.votes, "vote")
        one, other = (self._words.get(name, name) for name in (first.name, first.against))
        mean, low, high = first.share.mean, first.share.low, first.share.high
        if mean < 0.5:  # name the preferred model first
            one, other, mean, low, high = other, one, 1 - mean, 1 - high, 1 - low
        share = (
            f"{formatting.percent(mean)} ({formatting.percent(low)} to {formatting.percent(high)})"
        )
        return (
            f"{one} preferred to {other}: {share} of {formatting.plural(first.share.count, 'vote')}"
        )

    def _fit_columns(self, count: int) -> None:
        while len(self._columns) < count:
            column = SideColumn()
            column.first = not self._columns
            self._columns.append(column)
            self._room.addWidget(column, 1)
        while len(self._columns) > count:
            self._columns.pop().deleteLater()

    def _build(self) -> None:
        assert self.header is not None
        for tool in (self._edit, self._how, self._anew, self._blind):
            self.header.add_right(tool)
        self._nothing.setContentsMargins(48, 24, 48, 24)
        self.body.setSpacing(0)
        add(self.body, (self._nothing, 1), (self._room, 1))
        foot = hbox(
            (self._ask, 1),
            self._answer,
            self._stop,
            self._try,
            self._judge,
            self._left,
            self._tie,
            self._right,
            margins=MARGIN,
            spacing=8,
        )
        self.body.addLayout(foot)
        self._ask.setFixedHeight(32)

    def _wire(self) -> None:
        self._tasks.failed.connect(lambda _, problem: self.problem_raised.emit(problem))
        self._ask.returnPressed.connect(self._put)
        self._try.clicked.connect(self._scenario_menu)
        self._stop.clicked.connect(self._halt)
        self._judge.clicked.connect(self._ask_judge)
        self._left.clicked.connect(lambda: self._vote("left"))
        self._tie.clicked.connect(lambda: self._vote("tie"))
        self._right.clicked.connect(lambda: self._vote("right"))
        self._repaint.timeout.connect(self._show)
        self._blind.toggled.connect(lambda _: self._begin([s.name for s in self._talk.sides]))
        self._anew.clicked.connect(lambda: self.show_prompt(None))
        self._answer.clicked.connect(self._answer_prompt)
        self._edit.clicked.connect(lambda: self.edit_wanted.emit(self._talk.prompt))
        self._how.clicked.connect(self._how_menu)

    def _how_menu(self) -> None:
        menu = QMenu(self)
        menu.aboutToHide.connect(menu.deleteLater)
        for value, words in TEMPERATURES:
            action = menu.addAction(words)
            action.setCheckable(True)
            action.setChecked(value == self._temperature)
            action.triggered.connect(lambda _=False, v=value: self._sample_with(v, self._seed))
        menu.addSeparator()
        again = menu.addAction("New seed")
        seed = random.randrange(1, 1000)
        again.triggered.connect(lambda: self._sample_with(self._temperature, seed))
        menu.popup(self._how.mapToGlobal(self._how.rect().bottomLeft()))

    def _sample_with(self, temperature: float, seed: int) -> None:
        self._temperature, self._seed = temperature, seed
        self._show()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Vote with ←, → and T (tie) once all models have responded."""
        choices = {Qt.Key.Key_Left: "left", Qt.Key.Key_Right: "right", Qt.Key.Key_T: "tie"}
        choice = choices.get(Qt.Key(event.key()))
        if choice and self._talk.can_vote:
            self._vote(choice)
        else:
            super().keyPressEvent(event)


def _empty_words(models: int) -> str:
    if not models:
        return "Select up to four models above to chat with them."
    return (
        "Send a prompt, or run a scenario. Every model gets the same prompt and seed, so "
        "only the models differ."
    )
