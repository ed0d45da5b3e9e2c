"""Export of a checkpoint to other formats, verified by a parity check."""

from contextlib import aclosing
from pathlib import Path

from PySide6.QtCore import QUrl, Signal
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QFileDialog, QGridLayout, QWidget

from engine.protocol.problems import Problem
from engine.protocol.requests.exports import (
    ExportCheckpoint,
    ExportReport,
    ExportTicked,
    ParityReport,
)
from studio.runtime.tasks import TaskScope
from studio.services.session import Session
from studio.text import formatting
from studio.widgets.cards.card import ChoiceCard
from studio.widgets.cards.check_line import CheckLine
from studio.widgets.cards.sheet import Sheet
from studio.widgets.charts.gap_histogram import GapHistogram
from studio.widgets.controls.buttons import Button
from studio.widgets.controls.command_block import CommandBlock
from studio.widgets.forms.form_fields import ChoiceField, PathField
from studio.widgets.layouts import STRETCH, add, hbox, vbox
from studio.widgets.tables.meter import MeterRow
from studio.widgets.text.chip import Chip
from studio.widgets.text.text import Text

FORMATS = {
    "adapter": ("Adapter", "for PEFT, vLLM"),
    "merged": ("Merged", "full weights"),
    "gguf": ("GGUF", "llama.cpp, Ollama"),
}
DTYPES: dict[str, list[tuple[str | None, str]]] = {
    "adapter": [(None, "float32, as trained")],
    "merged": [
        (None, "same as the base model"),
        ("bfloat16", "bfloat16"),
        ("float16", "float16"),
        ("float32", "float32"),
    ],
    "gguf": [
        (None, "float16"),
        ("q8_0", "q8_0 (8-bit)"),
        ("bfloat16", "bfloat16"),
        ("float32", "float32"),
    ],
}
TONES = {"equal": ("good", "shield-check"), "close": ("warn", "shield-check"),
         "differs": ("bad", "octagon-alert")}  # fmt: skip
PHASES = {
    "checking": "Checking the checkpoint",
    "reference": "Loading the trained weights",
    "writing": "Writing the files",
    "weights": "Comparing all weights",
    "reading_back": "Verifying the files",
    "publishing": "Moving the files into place",
    "pushing": "Uploading",
}


class ExportSheet(Sheet):
    """Sheet for an export: `show_checkpoint(…)`, then `open()`. Emits `exported()` when files were
    created."""

    exported = Signal()

    def __init__(self, session: Session, host: QWidget) -> None:
        super().__init__("Export", host)
        self._session, self._tasks = session, TaskScope(self)
        self._run_id, self._name, self._step, self._format = "", "", 0, "merged"
        self._folder_edited = False
        self._sizes: dict[str, float] = {}
        self._report: ExportReport | None = None
        self._cards = {k: ChoiceCard(title, "", words) for k, (title, words) in FORMATS.items()}
        self._folder, self._dtype = PathField("Folder"), ChoiceField("Precision")
        self._phase = Text("", "label", 500)
        self._progress = MeterRow("", words_px=0, figure_px=48)
        self._proof = Proof()
        self._commands = Commands()
        self._words = Text("", "caption", 400, "muted", wrap=True)
        self._cancel = Button("Cancel", "quiet", height=32)
        self._go = Button("Export", "primary", icon="package-check", height=32)
        self._build()
        for key, card in self._cards.items():
            card.pressed.connect(lambda key=key: self._choose(key))
        self._folder.browse_requested.connect(self._browse)
        self._folder.edited.connect(self._edited)
        self._dtype.edited.connect(lambda _: self._show("ready"))
        self._cancel.clicked.connect(self._leave)
        self._go.clicked.connect(self._press)

    async def close_tasks(self) -> None:
        await self._tasks.close()

    def show_checkpoint(self, run_id: str, name: str, step: int, sizes: dict[str, float]) -> None:
        """Select the checkpoint of a run (id, `name`); ignored while an export is running.

        `sizes`: format and precision ("gguf q8_0") → file size in bytes, where known in advance."""
        if self._tasks.busy("export"):
            return
        self._run_id, self._step, self._name = run_id, step, name
        self._folder_edited, self._report = False, None
        self._sizes = sizes
        self.set_title(f"Export step {step}")
        self._choose(self._format)
        self._show("ready")

    def _choose(self, key: str) -> None:
        if self._tasks.busy("export"):
            return
        self._format = key
        for other, card in self._cards.items():
            card.set_chosen(other == key)
        self._dtype.set_choices(DTYPES[key])
        self._dtype.set_value(None)
        if not self._folder_edited:
            folder = Path.home() / "models" / f"{self._name}-{self._step}-{key}"
            self._folder.set_value(str(folder))
        self._show("ready")

    def _press(self) -> None:
        if self._report is not None and self._report.path:
            QDesktopServices.openUrl(QUrl.fromLocalFile(self._report.path))
            return
        force = self._report is not None
        self._report = None
        request = ExportCheckpoint(
            format=self._format,  # type: ignore[arg-type]
            out=str(Path(self._folder.value()).expanduser()),
            dtype=self._dtype.value(),
            force=force,
        )
        self._tasks.run("export", self._export(request), failed=self._failed)
        self._show("running")

    async def _export(self, request: ExportCheckpoint) -> None:
        client = self._session.client
        async with aclosing(client.export(self._run_id, self._step, request)) as ticks:
            async for one in ticks:
                if isinstance(one, ExportTicked):
                    self._tick(one)
                else:
                    self._take(one)

    def _tick(self, tick: ExportTicked) -> None:
        self._phase.set_words(PHASES.get(tick.phase, tick.words))
        self._progress.set_value(tick.share, formatting.percent(tick.share))

    def _take(self, report: ExportReport) -> None:
        self._report = report
        self._proof.show_report(report.parity)
        self._commands.show_report(report)
        self._show("done" if report.path else "refused")
        if report.path:
            self.exported.emit()

    def _failed(self, problem: Problem) -> None:
        self._show("failed")
        self._words.set_words(f"{problem.message} {problem.hint}".strip())
        self._words.set_tone("bad")

    def _leave(self) -> None:
        """Stop a running export and delete its partial files; otherwise close the sheet."""
        if self._tasks.busy("export"):
            self._tasks.cancel("export")
            self._show("stopped")
        else:
            self.close_sheet()

    def _edited(self) -> None:
        self._folder_edited = True

    def _browse(self) -> None:
        dialog = QFileDialog(self.window(), "Export destination", str(Path.home()))
        dialog.setFileMode(QFileDialog.FileMode.Directory)
        dialog.fileSelected.connect(self._browsed)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def _browsed(self, folder: str) -> None:
        self._folder_edited = True
        self._folder.set_value(str(Path(folder) / f"{self._name}-{self._step}-{self._format}"))

    def _show(self, state: str) -> None:
        running, done = state == "running", state in ("done", "refused")
        for part in (*self._cards.values(), self._folder, self._dtype):
            part.setEnabled(not (running or done))
        self._phase.setVisible(running)
        self._progress.setVisible(running)
        self._proof.setVisible(done)
        self._commands.setVisible(state == "done")
        self._words.set_tone("muted")
        self._words.set_words(WORDS[state])
        self._cancel.set_words("Stop" if running else "Close" if done else "Cancel")
        title = FORMATS[self._format][0].lower() if self._format != "gguf" else "GGUF"
        size = self._sizes.get(f"{self._format} {self._dtype.value() or ''}".strip())
        price = formatting.size(size) if size else ""
        self._go.set_kind("danger" if state == "refused" else "primary")
        if state == "refused":
            self._go.set_words("Export despite differences", "")
        elif done:
            self._go.set_words("Open the folder", "")
        else:
            self._go.set_words(f"Export {title}", price)
        self._go.setEnabled(not running)
        if running:
            self._cancel.setFocus()  # the focused button is disabled now
            self._phase.set_words("Starting")
            self._progress.set_value(0.0, "")

    def _build(self) -> None:
        choices = hbox(*((card, 1) for card in self._cards.values()), spacing=8)
        add(self.body, Text("Format", "label", 500, "muted"), choices)
        form = QGridLayout()
        form.setVerticalSpacing(8)
        form.addWidget(Text("Precision", "label", 400, "muted"), 0, 0)
        form.addWidget(self._dtype, 0, 1)
        form.addWidget(Text("Folder", "label", 400, "muted"), 1, 0)
        form.addWidget(self._folder, 1, 1)
        form.setColumnStretch(1, 1)
        add(
            self.body,
            form,
            self._phase,
            self._progress,
            self._proof,
            self._commands,
            STRETCH,
            self._words,
        )
        add(self.foot, STRETCH, self._cancel, self._go)


WORDS = {
    "ready": "A separate process loads the exported files and compares them with the trained "
    "model. The result is saved as parity.json. Exports that differ are deleted.",
    "running": "Stopping deletes all partial files.",
    "stopped": "Export stopped. Partial files were deleted.",
    "failed": "",
    "refused": "The export differs from the trained model and was deleted. “Export "
    "despite differences” keeps the files and lists the differences in the report and model card.",
    "done": "parity.json and a model card were saved next to the files.",
}


class Proof(QWidget):
    """View of the parity report: exported model compared with the checkpoint."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._chip, self._facts = Chip("equal", "good"), Text("", "caption", 400, "faint")
        self._chart = GapHistogram()
        self._about = Text("", "caption", 400, "muted", wrap=True)
        self._lines = [CheckLine() for _ in range(6)]
        self._difference = Text("", "caption", 400, "bad", wrap=True, selectable=True)
        head = hbox(Text("Parity report", "label", 600), self._chip, STRETCH, self._facts)
        vbox(
            head,
            self._chart,
            self._about,
            *self._lines,
            self._difference,
            parent=self,
            margins=(0, 8, 0, 0),
            spacing=4,
        )

    def show_report(self, report: ParityReport) -> None:
        tone, icon = TONES[report.verdict]
        self._chip.set_state(report.verdict, tone, icon)
        gap = report.logprobs
        self._chart.setVisible(gap is not None)
        self._facts.set_words("")
        if gap is not None:
            self._facts.set_words(
                f"{formatting.plural(gap.sequences, 'trajectory', 'trajectories')}, "
                f"{gap.tokens:,} tokens"
            )
            limit = report.limits.largest or report.limits.p99
            words = f"Log-probability gaps, mean {gap.mean:.2g}, largest {gap.largest:.2g}"
            self._chart.set_counts(gap.histogram.edges, gap.histogram.counts, limit, words)
        self._about.set_words(
            "Log-probability gap per token between exported and trained model, in nats"
        )
        for line, (state, words, figure) in zip(self._lines, checks_of(report), strict=True):
            line.set_check(state, words, figure)
        self._difference.set_words(_difference(report))
        self._difference.setVisible(bool(self._difference.words()))


def checks_of(report: ParityReport) -> list[tuple[str, str, str]]:
    """Return the six checks of exported against trained model as (state, text, figure)."""
    gap, greedy, same, weights = report.logprobs, report.greedy, report.same, report.weights
    limits = report.limits
    whole = weights.numbers if weights else 0
    return [
        _check("Weights equal", weights and weights.good, f"{whole:,}" if weights else "–"),
        _check("Largest gap", gap and (limits.largest is None or gap.largest <= limits.largest),
               _gap(gap.largest if gap else None)),
        _check("Mean gap", gap and gap.mean <= limits.mean, _gap(gap.mean if gap else None)),
        _check("Same greedy output", greedy and greedy.same + greedy.ties == greedy.prompts,
               f"{greedy.same} of {greedy.prompts} prompts" if greedy else "–"),
        _check("Chat template, tokenizer and stop tokens", same and all(same.model_dump().values()),
               "same" if same and all(same.model_dump().values()) else "differ"),
        _check("Files", not report.files.wrong, f"{report.files.files}, hashes match"
               if not report.files.wrong else f"{len(report.files.wrong)} differ"),
    ]  # fmt: skip


def _check(words: str, good: object, figure: str) -> tuple[str, str, str]:
    state = "open" if good is None else "good" if good else "bad"
    return state, words, figure


def _gap(value: float | None) -> str:
    return "–" if value is None else f"{value:.2g}"


def _difference(report: ParityReport) -> str:
    """Describe the problem and the first prompt whose greedy decoding differs; else empty."""
    failures = list(report.failures)
    if report.greedy and report.greedy.first and report.verdict == "differs":
        first = report.greedy.first
        failures.append(f"Trained: {first.reference}\nExported: {first.exported}")
    return "\n".join(failures)


class Commands(QWidget):
    """Commands that serve the exported model, one per program."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._rows: list[QWidget] = []
        self._column = vbox(
            Text("Serve the model", "label", 600), parent=self, margins=(0, 8, 0, 0), spacing=6
        )

    def show_report(self, report: ExportReport) -> None:
        for row in self._rows:
            row.deleteLater()
        self._rows = [CommandBlock(one.tool, one.command, one.note) for one in report.commands]
        add(self._column, *self._rows)
