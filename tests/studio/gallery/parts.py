"""Gallery pages of the smaller parts: buttons, chips, forms, tables, cards, transcript."""

from typing import Any, ClassVar

import numpy as np
from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, Qt
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QVBoxLayout, QWidget

from studio.theme.item_roles import ICON_ROLE, TONE_ROLE, VALUE_ROLE
from studio.widgets.cards.card import Card, ChoiceCard
from studio.widgets.cards.check_line import CheckLine
from studio.widgets.cards.diagnosis_card import DiagnosisCard
from studio.widgets.cards.empty_page import EmptyPage, Preparation
from studio.widgets.cards.error_card import ErrorCard, Remedy
from studio.widgets.cards.key_values import KeyValues
from studio.widgets.cards.run_banner import RunBanner
from studio.widgets.cards.sample_card import SampleCard
from studio.widgets.cards.sheet import Sheet
from studio.widgets.cards.toast import Toast
from studio.widgets.charts.chart_card import ChartCard
from studio.widgets.charts.link import ChartLink
from studio.widgets.controls.buttons import Button, IconButton
from studio.widgets.controls.inputs import LineInput, SearchInput
from studio.widgets.controls.keycap import KeyCap
from studio.widgets.controls.price_button import PriceButton
from studio.widgets.controls.segmented import Segmented
from studio.widgets.controls.toggle import Toggle
from studio.widgets.controls.train_button import TrainButton
from studio.widgets.forms.form import FormRow
from studio.widgets.forms.form_fields import (
    ChoiceField,
    NumberField,
    PathField,
    SpinField,
    TextField,
    ToggleField,
)
from studio.widgets.painting.advantage_mark import AdvantageMark
from studio.widgets.steps.strip_layout import StepCell
from studio.widgets.tables.interval_axis import Interval, IntervalAxis
from studio.widgets.tables.reward_bar import Part, PartsBar
from studio.widgets.tables.state_chip import STATES, StateChip
from studio.widgets.tables.table import Table
from studio.widgets.text.chip import TONES, Chip, FilterChip
from studio.widgets.text.phrase import Span
from studio.widgets.text.text import Text
from studio.widgets.transcript.items import Item, Message, Note, Outcome, Token, ToolCall
from studio.widgets.transcript.view import Transcript
from studio.widgets.window.engine_pill import EnginePill
from tests.studio import demo

ROOT = QModelIndex()
PARTS = (
    Part("judge", 0.56, "plot-2"),
    Part("sources", 0.18, "plot-3"),
    Part("answer", 0.1, "plot-6"),
)


def _line(*widgets: QWidget) -> QHBoxLayout:
    line = QHBoxLayout()
    line.setSpacing(8)
    for widget in widgets:
        line.addWidget(widget)
    line.addStretch(1)
    return line


def parts_page() -> QWidget:
    """Show buttons, chips, pills, inputs and marks."""
    page = QWidget()
    grid = QGridLayout(page)
    grid.setContentsMargins(16, 16, 16, 16)
    grid.setSpacing(12)
    grid.addWidget(_buttons(), 0, 0)
    grid.addWidget(_chips(), 0, 1)
    grid.addWidget(_marks(), 1, 0)
    grid.addWidget(_cards(), 1, 1)
    return page


def _buttons() -> Card:
    card = Card("Buttons")
    off = Button("Train", "primary", icon="play")
    off.setEnabled(False)
    card.body.addLayout(
        _line(
            Button(
                "Train", "primary", icon="play", price="120 steps \u00b7 \u2248 4 h 30", height=32
            ),
            Button("Train one step \u00b7 \u2248 2 min", height=32),
            off,
        )
    )
    busy = Button("Re-judge", "primary")
    busy.set_busy("counting calls\u2026", 0.4)
    card.body.addLayout(
        _line(
            Button("Rest the 3 scenarios", height=24),
            Button("Show them", "quiet", height=24),
            Button("Delete 3 checkpoints", "danger"),
            busy,
            Button("Apply label", "primary", key="Enter"),
            Button("Override \u00b7 this step", menu_arrow=True),
            IconButton("x", "Close"),
        )
    )
    priced, over, running = (PriceButton("scale"), PriceButton("scale"), PriceButton("scale"))
    priced.set_priced("Re-judge 24 groups", "48 calls \u00b7 \u2248 $0.31")
    over.set_over_budget("Re-judge 24 groups", "$0.31", "$0.31 of $0.12 left")
    running.set_running("Re-judging 12 of 24", 0.5)
    card.body.addLayout(_line(priced, running))
    card.body.addLayout(_line(over))
    trains = []
    for state in ("ready", "starting", "training", "paused", "finished", "none"):
        train = TrainButton()
        train.set_state(state, 46, 120)
        trains.append(train)
    card.body.addLayout(_line(*trains))
    toggle, on = Toggle("Blind"), Toggle("Use as an example for the judge")
    on.setChecked(True)
    card.body.addLayout(_line(Segmented(["Columns", "Reader", "Table"], "View"), toggle, on))
    card.body.addStretch(1)
    return card


def _chips() -> Card:
    card = Card("Chips, pills, inputs", "every tone")
    card.body.addLayout(_line(*[Chip(tone, tone, icon="check") for tone in TONES]))
    states = []
    for state in STATES:
        chip = StateChip()
        chip.set_run_state(state, state)
        states.append(chip)
    card.body.addLayout(_line(*states))
    card.body.addLayout(
        _line(
            EnginePill("gpu-box \u00b7 H200", "connected"),
            EnginePill("gpu-box \u00b7 reconnecting in 4 s", "reconnecting"),
            EnginePill("gpu-box", "gone"),
            EnginePill(),
        )
    )
    best = KeyCap("6", "best")
    best.set_active(True)
    card.body.addLayout(
        _line(
            FilterChip("Step 45\u201347", active=True),
            FilterChip("Disagree", "4"),
            Chip("learning_rate 2e-5", mono=True),
            KeyCap("Ctrl K"),
            best,
            KeyCap("V", "veto"),
        )
    )
    card.body.addWidget(SearchInput("Search 2,944 trajectories"))
    wrong = LineInput("Steps", "")
    wrong.setText("twelve")
    wrong.set_problem(True)
    card.body.addWidget(wrong)
    card.body.addStretch(1)
    return card


def _marks() -> Card:
    card = Card("Marks")
    bar = PartsBar()
    bar.set_parts(PARTS)
    up, down, none = AdvantageMark(), AdvantageMark(), AdvantageMark()
    up.set_advantage(0.24)
    down.set_advantage(-0.48)
    card.body.addWidget(bar)
    card.body.addLayout(_line(up, down, none))
    axis = IntervalAxis()
    axis.set_intervals(
        [
            Interval(0.48, 0.38, 0.62, "muted", "circle", "rubric 3"),
            Interval(0.71, 0.62, 0.79, "judge", "circle", "rubric 4"),
        ]
    )
    axis.set_zone(0.83)
    card.body.addWidget(axis)
    values = KeyValues(2)
    values.set_values(
        [
            ("Loss", "clipped, token mean"),
            ("Advantage", "mean of group"),
            ("KL", "off"),
            ("Seed", "7"),
        ]
    )
    card.body.addWidget(values)
    for state in ("good", "warn", "open"):
        card.body.addWidget(CheckLine(state, "Agent, judge and engine answer", "0.0163"))
    card.body.addStretch(1)
    return card


def _cards() -> QWidget:
    page = QWidget()
    column = QVBoxLayout(page)
    column.setContentsMargins(0, 0, 0, 0)
    column.setSpacing(12)
    choices = [ChoiceCard("Judge", "0.70", "rubric 4, o4-mini", icon="scale", icon_tone="judge")]
    choices += [ChoiceCard("You", "off", "asks you every N steps", icon="user", icon_tone="human")]
    choices[0].set_chosen(True)
    row = QHBoxLayout()
    for choice in choices:
        row.addWidget(choice)
    column.addLayout(row)
    column.addWidget(
        DiagnosisCard(
            "Why it grew",
            "Since step 6 the agent repeats a failing query up to 4 times.",
            "Add a turn cost of 0.02",
            "Show 14 trajectories",
            tone="info",
            wide=True,
        )
    )
    link = ChartLink(page)
    empty, never = ChartCard("Reward", link), ChartCard("Validation", link)
    empty.set_empty("First point after step 1, in about 2 min")
    never.set_empty("No validation scenarios yet")
    charts = QHBoxLayout()
    charts.addWidget(empty)
    charts.addWidget(never)
    column.addLayout(charts, 1)
    return page


def home_page() -> QWidget:
    """Show banner, table, samples and error card."""
    page = QWidget()
    column = QVBoxLayout(page)
    column.setContentsMargins(24, 16, 24, 16)
    column.setSpacing(12)
    banner = RunBanner()
    rewards = demo.reward()
    cells = [StepCell(i, "done", float(rewards[i])) for i in range(46)]
    cells += [StepCell(i, "planned") for i in range(46, 120)]
    banner.set_run(
        "inbox-scout is training",
        "step 46 of 120 \u00b7 2 h 40 min left",
        cells,
        [
            Span("reward "),
            Span("0.66", "text", 600),
            Span(" +0.41", "good"),
            Span("    \u25b3 1 notice", "warn", link="n"),
        ],
        0.2,
        0.75,
    )
    column.addWidget(banner)
    card = Card("Recent projects", padding=1)
    table = Table("Projects")
    table.setModel(ProjectModel(table))
    for index, (width, kind) in enumerate(ProjectModel.COLUMNS.values()):
        table.set_column(index, width, kind)
    table.setFixedHeight(28 + 3 * 36 + 2)
    table.selectRow(0)
    card.body.addWidget(table)
    column.addWidget(card)
    row = QHBoxLayout()
    row.setSpacing(12)
    for key, name, time in (
        ("yes-no-maybe", "Yes, no, maybe", "4 min \u00b7 CPU"),
        ("2048", "2048", "35 min \u00b7 CPU"),
        ("tic-tac-toe", "Tic-tac-toe", "20 min \u00b7 CPU"),
        ("email-search", "Email search", "2 h \u00b7 GPU"),
    ):
        badge = "recommended" if key == "yes-no-maybe" else ""
        row.addWidget(
            SampleCard(
                key, name, time, "Learns to say the rewarded word, on any laptop.", badge=badge
            )
        )
    column.addLayout(row)
    column.addWidget(
        ErrorCard(
            "The engine stopped: the GPU ran out of memory",
            "While training step 13, the longest trajectory (1,180 tokens, 9 turns) needed "
            "6.2 GB more "
            "than was free. No data was lost: 12 steps, 768 trajectories and the checkpoint "
            "of step 11 are "
            "safe on disk.",
            [
                Remedy(
                    "split",
                    "Train in two smaller batches",
                    "Same mathematics and result, about 15 % slower",
                    "Resume with this",
                    "scissors",
                    104 / 141,
                    "104 / 141 GB",
                ),
                Remedy(
                    "cap",
                    "Cap a trajectory at 1,024 tokens",
                    "3 % of trajectories would have been cut",
                    "Set and resume",
                    "ruler",
                    112 / 141,
                    "112 / 141 GB",
                ),
            ],
            "Atelier does not restart by itself after running out of memory: it would happen "
            "again.",
            "Tuesday 16:42",
        )
    )
    column.addStretch(1)
    return page


class ProjectModel(QAbstractTableModel):
    """Three sample projects."""

    COLUMNS: ClassVar[dict[str, tuple[int | None, str]]] = {
        "Project": (None, "strong"),
        "State": (240, "text"),
        "Reward by step": (150, "sparkline"),
        "Siblings": (110, "dots"),
        "Parts": (110, "parts"),
        "Validation": (90, "mono"),
    }
    ROWS = (
        ("inbox-scout", "Training, step 46 of 120", "accent", "activity", "plot-1"),
        ("shop-sql", "Failed: out of memory", "bad", "octagon-alert", "plot-5"),
        ("triage-notes", "Waiting for your review", "human", "hand", "plot-4"),
    )

    def rowCount(self, parent: QModelIndex | QPersistentModelIndex = ROOT) -> int:
        return len(self.ROWS)

    def columnCount(self, parent: QModelIndex | QPersistentModelIndex = ROOT) -> int:
        return len(self.COLUMNS)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = 0) -> Any:
        if orientation == Qt.Orientation.Horizontal and role == Qt.ItemDataRole.DisplayRole:
            return list(self.COLUMNS)[section]
        return None

    def data(self, index: QModelIndex | QPersistentModelIndex, role: int = 0) -> Any:
        name, state, tone, icon, token = self.ROWS[index.row()]
        column = index.column()
        if role == Qt.ItemDataRole.DisplayRole:
            return {0: name, 1: state, 5: "0.64"}.get(column)
        if role == TONE_ROLE and column == 1:
            return tone
        if role == ICON_ROLE and column == 1:
            return icon
        if role == VALUE_ROLE:
            return {2: (list(demo.reward()), token), 3: demo.GROUPS[0][1], 4: PARTS}.get(column)
        return None


def form_page() -> QWidget:
    """Show every editor, an open sheet and the foot line."""
    page = QWidget()
    column = QVBoxLayout(page)
    column.setContentsMargins(24, 24, 460, 24)
    column.setSpacing(12)
    column.addWidget(Text("Advanced", "title"))
    rate = NumberField("Learning rate")
    rate.set_value(2e-5)
    loss = ChoiceField("Loss", [("clip", "Clipped"), ("cispo", "CISPO"), ("gspo", "GSPO")])
    rows = [
        FormRow("steps", "Steps", SpinField("Steps", 1, 10_000)),
        FormRow("rate", "Learning rate", rate),
        FormRow("loss", "Loss", loss),
        FormRow("name", "Name", TextField("Name", "inbox-scout")),
        FormRow("teach", "Teach the judge", ToggleField("Teach the judge", "from each label")),
        FormRow("folder", "Folder", PathField("Folder", "~/models/inbox-scout-40")),
    ]
    rows[0].field.set_value(120)
    rows[1].set_problem("2e5 is far above what a LoRA takes: at most 0.01")
    rows[3].set_locked("a change starts with the next run \u00b7 Branch")
    rows[2].set_note("The dials suggest 1.0", "info")
    for row in rows:
        column.addWidget(row)
    column.addStretch(1)
    sheet = Sheet("Export step 40", page)
    sheet.body.addWidget(Text("Format", "label", 600))
    line = QHBoxLayout()
    for name, words in (("Adapter", "84 MB"), ("Merged", "16.4 GB"), ("GGUF", "Q8, 8.7 GB")):
        choice = ChoiceCard(name, "", words)
        choice.setMinimumWidth(80)
        choice.set_chosen(name == "Merged")
        line.addWidget(choice)
    sheet.body.addLayout(line)
    for words, figure in (("Largest gap", "0.0163"), ("Mean gap", "0.0041")):
        sheet.body.addWidget(CheckLine("good", words, figure))
    sheet.body.addStretch(1)
    sheet.foot.addStretch(1)
    sheet.foot.addWidget(Button("Cancel", height=32))
    sheet.foot.addWidget(
        Button("Export merged", "primary", icon="package-check", price="16.4 GB", height=32)
    )
    toast = Toast(page)
    toast.setGeometry(0, page.height() - 60, page.width(), 60)
    sheet.open()
    toast.say("6 labelled best. Advantages changed for 2 of 8.", undo="Undo")
    return page


def empty_page() -> QWidget:
    """Show an empty Run page."""
    page = EmptyPage(
        "No run yet",
        "Train starts with 8 attempts at each of 8 scenarios, compares them, and changes "
        "the model a little "
        "towards the better ones. You watch it here.",
        drawing="run",
        caption="34 % solved before training",
    )
    page.set_preparations(
        [
            Preparation(
                "agent", "Agent answers", "agent.py ran once in 4.2 s and used 3 tools", True
            ),
            Preparation(
                "judge", "Judge tried", "Optional: see how it ranks", False, "Try it \u00b7 8 calls"
            ),
        ]
    )
    page.set_actions(
        "Train",
        "120 steps \u00b7 \u2248 4 h 30",
        "Train one step \u00b7 \u2248 2 min",
        "Ctrl \u21b5",
        "play",
    )
    return page


def transcript_items() -> list[Item]:
    """Return a short trajectory with every kind of row."""
    words = (
        "The first result is an itinerary from March. Flights are often retimed, so I "
        "will check for a later change before answering."
    )
    noise = np.random.default_rng(3)
    tokens = [
        Token(
            word + " ",
            advantage=0.31,
            logprob=-float(noise.exponential(1.1)),
            logprob_now=-1.0,
            entropy=float(noise.random()),
            clipped=word == "later",
            place=1200 + n,
        )
        for n, word in enumerate(words.split())
    ]
    call = [Token('read_email(id="msg_2214")', advantage=-0.04, place=1400)]
    return [
        Note(
            "Shared with all 8 siblings",
            "system, question, turn 1 and its search \u00b7 1,184 tokens",
        ),
        Message(
            "user",
            "What time does Dana Whitfield land in Lisbon on the 14th? <b>plain</b>",
            "Question",
            "31 tokens",
        ),
        Message("assistant", title="Turn 2", facts="74 tokens", advantage=0.31, tokens=tokens),
        ToolCall(
            "search_inbox",
            'keywords=["TP 1041", "schedule"]',
            "msg_2231 \u00b7 \u201cChange to your booking\u201d \u00b7 12 May",
            facts="38 ms \u00b7 not trained",
            icon="search",
        ),
        Message("assistant", title="Turn 4", facts="39 tokens", advantage=-0.04),
        ToolCall(
            "read_email",
            "",
            "\n".join(f"line {n} of the mail" for n in range(24)),
            icon="mail",
            tokens=call,
            facts="not trained",
        ),
        ToolCall(
            "read_email", 'id="msg_9999"', "No email with this id.", "error", "38 ms", repeats=3
        ),
        ToolCall(
            "return_answer",
            "",
            "Dana lands at 15:10: TP 1041 was moved from 14:35 on 12 May. Miguel Sousa is "
            "picking her up.",
            "answer",
            sources=("msg_2231", "msg_2214"),
        ),
        Outcome("Finished with a response", "6.8 s, 5 turns", PARTS, "0.84"),
    ]


def transcript_page() -> QWidget:
    """Show a reader next to a narrow column."""
    page = QWidget()
    line = QHBoxLayout(page)
    line.setContentsMargins(0, 0, 0, 0)
    wide, narrow = Transcript(), Transcript(compact=True)
    wide.set_items(transcript_items())
    wide.focus_row(2)
    narrow.set_items(transcript_items())
    narrow.set_tint("logprob")
    narrow.setFixedWidth(260)
    line.addWidget(wide, 1)
    line.addWidget(narrow)
    return page
