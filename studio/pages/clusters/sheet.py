"""Sheet that adds or edits a cluster: name, base URL, server, SDK and API key, with a connection
test."""

from PySide6.QtWidgets import QLineEdit, QWidget

from engine.protocol.addresses import is_loopback
from engine.protocol.problems import ConfigError, Problem
from engine.protocol.requests.clusters import ClusterSpec, ClusterView, cluster_spec
from studio.pages.clusters.result import Result
from studio.runtime.tasks import TaskScope
from studio.services.session import Session
from studio.store.servers.cluster_rows import CLIENTS
from studio.widgets.cards.sheet import Sheet
from studio.widgets.controls.buttons import Button
from studio.widgets.forms.form import FormRow
from studio.widgets.forms.form_fields import ChoiceField, TextField
from studio.widgets.layouts import STRETCH, add
from studio.widgets.text.text import Text

LABEL_PX = 116
WORDS = (
    "A server with Tinker's API, hosted or your own. It gets the prompts and responses of runs "
    "that train there; the test sends nothing but the API key."
)
KEY_WORDS = "Stored in the system keyring; the engine keeps it in memory only."
KEPT = "A key is stored. Leave the field empty to keep it."
AGAIN = "Enter the API key again: the stored one was entered for another base URL."
TESTING = "Testing the connection…"
FIRST_TEST = "The first test installs the SDK, which can take a minute."
PLAIN = "Use https://, or an SSH tunnel and http://127.0.0.1:PORT."


class ClusterSheet(Sheet):
    """Sheet: `begin()` adds a cluster, `change(name)` edits one."""

    def __init__(self, session: Session, tasks: TaskScope, host: QWidget) -> None:
        super().__init__("Add a cluster", host)
        self._clusters, self._hosts, self._tasks = session.clusters, session.hosts, tasks
        self._editing = ""
        self._stored = False
        """Whether the keyring has a key for the cluster and address being edited."""
        self.name = TextField("Name", "tinker")
        self.address = TextField("Base URL", "https://host/path", mono=True)
        self.host = ChoiceField("Reached through")
        self.client = ChoiceField("SDK", CLIENTS)
        self.key = TextField("API key", "paste the key", mono=True, secret=True)
        self._rows = {
            "name": FormRow("name", "Name", self.name, label_px=LABEL_PX,
                            help="Name of the cluster in Atelier."),
            "address": FormRow("address", "Base URL", self.address, label_px=LABEL_PX,
                               help="Base URL of its API; http:// only on this machine."),
            "host": FormRow("host", "Reached through", self.host, label_px=LABEL_PX,
                            help="Server whose SSH tunnel leads to the cluster."),
            "client": FormRow("client", "SDK", self.client, label_px=LABEL_PX,
                              help="Client library that speaks the version of its server."),
            "key": FormRow("key", "API key", self.key, label_px=LABEL_PX,
                           help="Empty for a server without authentication."),
        }  # fmt: skip
        self._result = Result()
        self._test = Button("Test connection", "outlined", icon="plug-zap", height=32)
        self._save = Button("Save", "primary", icon="check", height=32)
        self._build()

    def begin(self) -> None:
        """Open the sheet for a new cluster."""
        self._fill(None)
        self.set_title("Add a cluster")
        self.open()
        self.name.setFocus()

    def change(self, name: str) -> None:
        """Open the sheet for a listed cluster."""
        if (view := self._clusters.view(name)) is None:
            return
        self._fill(view)
        self.set_title(f"Edit {name}")
        self.open()
        line = self.address.editor
        assert isinstance(line, QLineEdit)
        line.setFocus()
        line.setCursorPosition(0)
        self._tasks.run(
            "key", self._clusters.has_key(view.spec), self._show_stored, self._show_keyring
        )

    def close_sheet(self) -> None:
        """Close; a running test is cancelled, and the typed key is cleared."""
        self._tasks.cancel("key")
        self._clusters.tasks.cancel("test")
        self.key.set_value("")
        super().close_sheet()

    # Form

    def _fill(self, view: ClusterView | None) -> None:
        spec = view.spec if view else None
        self._editing, self._stored = spec.name if spec else "", False
        self.name.set_value(spec.name if spec else "")
        self.address.set_value(spec.address if spec else "")
        self._show_hosts(spec.host if spec else "")
        self.client.set_value(spec.client if spec else "tinker")
        self.key.set_value("")
        for row in self._rows.values():
            row.set_problem("")
        self._rows["name"].set_locked("The name cannot be changed" if spec else "")
        self._rows["key"].set_note(KEY_WORDS)
        self._show_port()
        self._result.clear()
        self._set_busy("")
        if view is not None and (view.report or view.problem):
            self._result.show_view(view)

    def _show_hosts(self, chosen: str) -> None:
        """Offer the servers through which a cluster can be reached, if there are any, and select
        `chosen`."""
        names = [view.spec.name for view in self._hosts.all]
        names += [chosen] if chosen and chosen not in names else []
        self.host.set_choices([("", "Directly"), *((name, f"Server {name}") for name in names)])
        self.host.set_value(chosen)
        self._rows["host"].setVisible(bool(names))

    def _show_port(self) -> None:
        """Show what a loopback address means behind a server."""
        name = str(self.host.value() or "")
        note = f"http://127.0.0.1:PORT is a port on {name}." if name else ""
        self._rows["host"].set_note(note)

    def _show_stored(self, stored: bool) -> None:
        self._stored = stored
        if stored:
            self._rows["key"].set_note(KEPT)

    def _show_keyring(self, problem: Problem) -> None:
        self._rows["key"].set_problem(f"{problem.message} {problem.hint}".strip())

    def _spec(self) -> ClusterSpec | None:
        """Return the entered settings, or None with errors shown."""
        found: dict[str, str] = {}
        spec: ClusterSpec | None = None
        name, address = self.name.value().strip(), self.address.value().strip()
        try:
            spec = cluster_spec(name, address, self.client.value(), str(self.host.value() or ""))
        except ConfigError as error:
            found[error.problem.where] = error.problem.message
        if name != self._editing and self._clusters.view(name) is not None:
            found["name"] = f"A cluster named {name} already exists."
        if spec and spec.address.startswith("http://") and not is_loopback(spec.address):
            found["address"] = f"Not encrypted. {PLAIN}"
        if spec and self._lacks_key(spec):
            found["key"] = AGAIN
        for key, row in self._rows.items():
            if key in found or row.problem():
                row.set_problem(found.get(key, ""))
        if found:
            self._rows[next(iter(found))].field.setFocus()
            return None
        return spec

    def _lacks_key(self, spec: ClusterSpec) -> bool:
        """Return whether the stored key was entered for another address."""
        view = self._clusters.view(self._editing)
        changed = view is not None and view.spec.place != spec.place
        return changed and self._stored and not self.key.value().strip()

    # Actions

    def _press_test(self) -> None:
        if (spec := self._spec()) is not None:
            self._set_busy("test")
            self._result.show_progress(TESTING, FIRST_TEST)
            self._clusters.test_settings(
                spec, self.key.value().strip(), self._tested, self._not_tested
            )

    def _press_save(self) -> None:
        if not self._save.is_busy() and (spec := self._spec()) is not None:
            self._clusters.tasks.cancel("test")
            self._set_busy("save")
            self._clusters.save(spec, self.key.value().strip(), self._saved, self._not_saved)

    def _tested(self, view: ClusterView) -> None:
        self._set_busy("")
        self._result.show_view(view)
        self.bring_into_view(self._result)

    def _saved(self, _: object) -> None:
        self._set_busy("")
        self.close_sheet()

    def _not_tested(self, problem: Problem) -> None:
        self._show_problem(problem, "The connection was not tested")

    def _not_saved(self, problem: Problem) -> None:
        """Show why saving failed. A cluster whose key alone could not be stored is saved."""
        name = self.name.value().strip()
        saved = problem.code.startswith("keyring.")
        self._show_problem(
            problem, f"{name} is saved, but its API key is not stored" if saved else "Not saved"
        )

    def _show_problem(self, problem: Problem, title: str) -> None:
        self._set_busy("")
        self._result.show_problem(problem, title)
        self.bring_into_view(self._result)

    def _set_busy(self, job: str) -> None:
        self._test.set_busy("Testing…" if job == "test" else None)
        self._save.set_busy("Saving…" if job == "save" else None)

    def _build(self) -> None:
        words = Text(WORDS, "label", 400, "muted", wrap=True)
        add(self.body, words, *self._rows.values(), self._result, STRETCH)
        add(self.foot, self._test, STRETCH, self._save)
        self._test.clicked.connect(self._press_test)
        self._save.clicked.connect(self._press_save)
        for key in ("name", "address", "key"):
            line = self._rows[key].field.editor
            assert isinstance(line, QLineEdit)
            line.returnPressed.connect(self._press_save)
            line.textEdited.connect(lambda _, key=key: self._edited(key))
        self.client.edited.connect(lambda _: self._edited("client"))
        self.host.edited.connect(lambda _: self._edited("host"))

    def _edited(self, key: str) -> None:
        """Remove messages that no longer fit the entered values."""
        if self._rows[key].problem():
            self._rows[key].set_note("")
        if key == "host":
            self._show_port()
        self._result.clear()
