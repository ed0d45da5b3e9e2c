"""SSH prompts of servers, shown one dialog at a time.

Secrets that a person wants to keep are stored in the system's keyring, by server and prompt: saved
after a successful login, used once per connection, and deleted if they were wrong."""

import hashlib
from dataclasses import dataclass, field

from PySide6.QtCore import QObject, QTimer, Slot
from PySide6.QtWidgets import QWidget

from engine.protocol.requests.remote import HostView, Question
from studio.runtime.tasks import TaskScope
from studio.services import api_keys
from studio.services.notifications import Choice, ask
from studio.services.servers import Hosts
from studio.widgets.forms.form_fields import Field, TextField
from studio.widgets.forms.question_fields import FingerprintField, SecretField

KEPT = ("passphrase", "password")
WRONG = ("ssh.password_wrong", "ssh.passphrase_wrong")
LONGEST = 600
"""Maximum number of characters of a prompt that are displayed."""
TITLES = {
    "host_key": "Verify the host key of {name}",
    "passphrase": "Passphrase for {name}",
    "password": "Password for {name}",
    "code": "{name} asks for a code",
}
ANSWERS = {"host_key": "Trust and connect", "passphrase": "Unlock", "password": "Log in",
           "code": "Answer"}  # fmt: skip


@dataclass
class Login:
    """Secrets of a login to one server, from the first prompt until it succeeds or fails."""

    failures: int = 0
    used: set[str] = field(default_factory=set)
    """Keyring entries used in this login."""
    typed: dict[str, str] = field(default_factory=dict)
    """Keyring entry → typed secret, stored after a successful login."""


class HostPrompts(QObject):
    """SSH prompts of one window."""

    def __init__(self, window: QWidget, hosts: Hosts, tasks: TaskScope) -> None:
        super().__init__(window)
        self._window, self._hosts, self._tasks = window, hosts, tasks
        self._logins: dict[str, Login] = {}
        self._answered: set[str] = set()
        self._shown = ""
        hosts.changed.connect(self._look)

    @Slot()
    def _look(self) -> None:
        """Show the next waiting prompt, and close the dialog of one that is no longer waiting."""
        for view in self._hosts.all:
            self._settle(view)
        waiting = {question.id: (name, question) for name, question in self._questions()}
        self._answered &= set(waiting)
        if self._shown and self._shown not in waiting:
            self._tasks.cancel("question")
            self._shown = ""
        fresh = [one for one in waiting if one not in self._answered]
        if fresh and not self._shown:
            self._shown = fresh[0]
            self._tasks.run("question", self._put(*waiting[fresh[0]]))

    def _questions(self) -> list[tuple[str, Question]]:
        return self._hosts.store.questions()

    async def _put(self, name: str, question: Question) -> None:
        try:
            value, was_wrong = await self._remembered(name, question)
            if value is None:
                value = await self._ask(name, question, was_wrong)
            self._answered.add(question.id)
            await self._hosts.answer(name, question, value)
        finally:
            if self._shown == question.id:
                self._shown = ""
            QTimer.singleShot(0, self, self._look)

    async def _ask(self, name: str, question: Question, was_wrong: bool) -> str | None:
        """Show the prompt in a dialog. Returns the answer, None if the person cancels."""
        why_not = await _why_not() if question.kind in KEPT else ""
        field = _field(question, why_not)
        choices = [Choice("", "Cancel"), Choice("yes", ANSWERS[question.kind], "primary")]
        title = TITLES[question.kind].format(name=name)
        words = question_words(question, was_wrong)
        answer, value = await ask(self._window, title, words, choices, field)
        if answer != "yes":
            return None
        if question.kind == "host_key":
            return "yes"
        if question.kind not in KEPT:
            return str(value)
        typed, remember = value
        if remember and typed:
            self._login(name).typed[key_name(name, question)] = typed
        return str(typed)

    # Stored secrets

    async def _remembered(self, name: str, question: Question) -> tuple[str | None, bool]:
        """Return the stored secret, if not used yet, and whether it was wrong and was deleted."""
        if question.kind not in KEPT:
            return None, False
        login, key = self._login(name), key_name(name, question)
        login.typed.pop(key, None)  # prompted again, so it was wrong
        try:
            if key in login.used:
                login.used.discard(key)
                await api_keys.delete(key)
                return None, True
            secret = await api_keys.get(key)
        except api_keys.KeyringError:  # shown in the dialog beside the disabled option
            return None, False
        if secret is not None:
            login.used.add(key)
        return secret, False

    def _login(self, name: str) -> Login:
        view = self._hosts.view(name)
        return self._logins.setdefault(name, Login(view.failures if view else 0))

    def _settle(self, view: HostView) -> None:
        """Store typed secrets after a successful login, and delete wrong stored ones after a failed
        login."""
        name, code = view.spec.name, view.problem.code if view.problem else ""
        login = self._logins.get(name)
        if login is None:
            return
        inside = view.state in ("connected", "starting", "installing")
        if inside or (view.state == "stopped" and code.startswith("host.")):
            del self._logins[name]
            for key, secret in login.typed.items():
                self._tasks.run(f"keep {key}", api_keys.put(key, secret))
        elif view.state == "stopped" and code:
            del self._logins[name]
            for key in login.used if code in WRONG else ():
                self._tasks.run(f"forget {key}", api_keys.delete(key))
        elif view.failures != login.failures:  # another connection: the given secret may be right
            login.failures = view.failures
            login.used.clear()


def key_name(name: str, question: Question) -> str:
    """Return the keyring entry of a secret for the server `name`: server, kind of prompt, hash of
    host and prompt."""
    digest = hashlib.sha256(f"{question.host}\n{question.prompt}".encode()).hexdigest()
    return f"ssh:{name}:{question.kind}:{digest[:16]}"


def question_words(question: Question, was_wrong: bool = False) -> str:
    """Return the text of a prompt's dialog; server text is verbatim. `was_wrong`: the stored secret
    was rejected and deleted."""
    via = f", reached through {question.via}" if question.via else ""
    prompt = question.prompt[:LONGEST].strip()
    if question.kind == "host_key":
        way = f" The server is reached through {question.via}." if question.via else ""
        return (
            f"{prompt}{way}\n\nCompare the fingerprint with the one from the administrator. If "
            "they differ, another machine may be impersonating the server."
        )
    words = f"{question.host}{via}: {prompt}"
    if was_wrong:
        words += "\n\nThe stored secret was wrong and was deleted."
    if question.kind == "passphrase":
        words += "\n\nLeave the passphrase empty to continue without this key."
    return words


def _field(question: Question, why_not: str) -> Field:
    if question.kind == "host_key":
        return FingerprintField(question.detail)
    if question.kind in KEPT:
        return SecretField(question.kind.capitalize(), why_not)
    return TextField("Answer", secret=not question.echo)


async def _why_not() -> str:
    """Return why secrets cannot be stored on this machine; empty if they can."""
    try:
        await api_keys.available()
    except api_keys.KeyringError as error:
        return error.problem.message
    return ""
