"""Settings: API keys of judges, kept in the operating system's keyring and nowhere else."""

from PySide6.QtWidgets import QHBoxLayout, QWidget

from engine.protocol.problems import Problem
from studio import keys
from studio.tasks import TaskScope
from studio.widgets.buttons import Button
from studio.widgets.card import Card
from studio.widgets.form_fields import ChoiceField, TextField
from studio.widgets.text import Text

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


class JudgeKeysCard(Card):
    """Choose a provider, paste its key, keep it; a kept key is never shown again."""

    def __init__(self, tasks: TaskScope, parent: QWidget | None = None) -> None:
        super().__init__(
            "Judge keys", "in the system's keyring, lent to the engine in memory", padding=16
        )
        self._tasks = tasks
        self._provider = ChoiceField("Provider", PROVIDERS)
        self._key = TextField("API key", "paste the key", mono=True, secret=True)
        self._keep = Button("Keep", "outlined", icon="key-round")
        self._forget = Button("Forget", "quiet", icon="trash-2")
        self._words = Text("", "caption", tone="faint", wrap=True)
        self._provider.setFixedWidth(180)
        line = QHBoxLayout()
        line.setSpacing(8)
        line.addWidget(self._provider)
        line.addWidget(self._key, 1)
        line.addWidget(self._keep)
        line.addWidget(self._forget)
        self.body.setSpacing(8)
        self.body.addLayout(line)
        self.body.addWidget(self._words)
        self._provider.edited.connect(lambda _: self.look())
        self._keep.clicked.connect(self._put)
        self._forget.clicked.connect(self._delete)

    def look(self) -> None:
        """Say whether the chosen provider's key is there."""
        name = str(self._provider.value())
        self._tasks.run("key", keys.get(name), lambda key: self._say(bool(key)), self._failed)

    def _put(self) -> None:
        if key := self._key.value().strip():
            self._key.set_value("")
            job = keys.put(str(self._provider.value()), key)
            self._tasks.run("key", job, lambda _: self._say(True), self._failed)

    def _delete(self) -> None:
        job = keys.delete(str(self._provider.value()))
        self._tasks.run("key", job, lambda _: self._say(False), self._failed)

    def _say(self, kept: bool) -> None:
        title = dict(PROVIDERS)[str(self._provider.value())]
        self._forget.setEnabled(kept)
        self._words.set_words(
            f"A key of {title} is kept." if kept else f"No key of {title} is kept."
        )

    def _failed(self, problem: Problem) -> None:
        self._words.set_words(f"{problem.message} {problem.hint}")
