"""API keys of judges and trackers, stored only in the keyring of the operating system."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from PySide6.QtWidgets import QWidget

from engine.protocol.problems import Problem
from studio.runtime.tasks import TaskScope
from studio.services import api_keys
from studio.services.key_lending import tracker_slot
from studio.widgets.cards.card import Card
from studio.widgets.controls.buttons import Button
from studio.widgets.forms.form_fields import ChoiceField, TextField
from studio.widgets.layouts import add, hbox
from studio.widgets.text.text import Text

PROVIDERS = (
    ("openai", "OpenAI"),
    ("anthropic", "Anthropic"),
    ("gemini", "Google Gemini"),
    ("openrouter", "OpenRouter"),
    ("mistral", "Mistral"),
    ("groq", "Groq"),
    ("deepseek", "DeepSeek"),
    ("together_ai", "Together AI"),
    ("xai", "xAI"),
)
TRACKERS = (
    ("wandb", "W&B"),
    ("langfuse", "Langfuse"),
    ("otel", "OpenTelemetry"),
    ("mlflow", "MLflow"),
)
FORMS = {
    "langfuse": "Format: PUBLIC:SECRET, for example pk-lf-…:sk-lf-….",
    "otel": "Format: headers of the OTLP collector as name=value pairs, separated by commas.",
    "mlflow": "Format: a token, or USER:PASSWORD.",
}
"""Tracker → explanation of the format of its key."""


class KeysCard(Card):
    """Card for a provider's key; stored keys are never shown."""

    def __init__(
        self,
        title: str,
        whose: str,
        choices: Sequence[tuple[str, str]],
        tasks: TaskScope,
        slot: Callable[[str], str] = str,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(
            title,
            "keys are stored in the system keyring; the engine keeps them in memory only",
            padding=16,
        )
        self._tasks, self._choices, self._slot = tasks, dict(choices), slot
        self._provider = ChoiceField(whose, choices)
        self._key = TextField(f"{whose}: API key", "paste the key", mono=True, secret=True)
        self._keep = Button("Save", "outlined", icon="key-round")
        self._forget = Button("Delete", "quiet", icon="trash-2")
        self._words = Text("", "caption", tone="faint", wrap=True)
        self._provider.setFixedWidth(180)
        line = hbox(self._provider, (self._key, 1), self._keep, self._forget, spacing=8)
        self.body.setSpacing(8)
        add(self.body, line, self._words)
        self._provider.edited.connect(lambda _: self.look())
        self._keep.clicked.connect(self._put)
        self._forget.clicked.connect(self._delete)

    def look(self) -> None:
        """Show whether a key is stored for the selected provider."""
        name = self._name
        self._run("look", api_keys.get(self._slot(name)), lambda key: self._say(name, bool(key)))

    def _put(self) -> None:
        """Store the key; the field keeps it until it is stored."""
        name, key = self._name, self._key.value().strip()
        if not key:
            return

        def kept(_: Any) -> None:
            if self._key.value().strip() == key:
                self._key.set_value("")
            self._say(name, True)

        self._tasks.cancel(self._job("look"))  # its result is outdated
        self._run("change", api_keys.put(self._slot(name), key), kept)

    def _delete(self) -> None:
        name = self._name
        self._tasks.cancel(self._job("look"))
        self._run("change", api_keys.delete(self._slot(name)), lambda _: self._say(name, False))

    @property
    def _name(self) -> str:
        return str(self._provider.value())

    def _job(self, what: str) -> str:
        return f"{what} key of {self._slot('')}"

    def _run(self, what: str, job: Coroutine[Any, Any, Any], done: Callable[[Any], None]) -> None:
        self._tasks.run(self._job(what), job, done, self._failed)

    def _say(self, name: str, kept: bool) -> None:
        """Show whether a key of provider `name` is stored, unless another one is selected."""
        if name != self._name:
            return
        title = self._choices[name]
        self._forget.setEnabled(kept)
        status = f"A key for {title} is stored." if kept else f"No key for {title} is stored."
        form = FORMS.get(name, "")
        self._words.set_tone("faint")
        self._words.set_words(f"{status} {form}" if form and not kept else status)

    def _failed(self, problem: Problem) -> None:
        self._words.set_tone("bad")
        self._words.set_words(f"{problem.message} {problem.hint}".strip())


def judge_keys_card(tasks: TaskScope) -> KeysCard:
    return KeysCard("Judge keys", "Provider", PROVIDERS, tasks)


def tracker_keys_card(tasks: TaskScope) -> KeysCard:
    """Build the card for tracker keys; trackio and TensorBoard write locally and need none."""
    return KeysCard("Tracker keys", "Tracker", TRACKERS, tasks, tracker_slot)
