"""Step 1 of adding a server: address, name and optional settings."""

import re
from collections.abc import Callable, Sequence

from pydantic import ValidationError
from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QWidget

from engine.protocol.requests.remote import HostSpec
from studio.widgets.controls.buttons import Button
from studio.widgets.forms.form import FormRow
from studio.widgets.forms.form_fields import ChoiceField, SegmentedField, SuggestField, TextField
from studio.widgets.layouts import add, vbox
from studio.widgets.text.text import Text

LABEL_PX = 92
TRANSPORTS = (("asyncssh", "Built in"), ("system", "System ssh"))
ENGINES = (
    ("auto", "Select automatically"),
    ("engine-gpu", "For NVIDIA GPUs"),
    ("engine-cpu", "For CPUs"),
)
PACKAGES = (
    (None, "Select automatically"),
    (False, "Downloaded by the server"),
    (True, "Uploaded from this machine"),
)
WRONG = {
    "address": "Write [user@]host[:port], or an alias of ~/.ssh/config.",
    "name": (
        "Letters, digits, dot, dash and underscore; at most 63, starting with a letter or digit."
    ),
}


class AddressForm(QWidget):
    """Address form; `spec()` returns its values. Emits `entered()` when Enter is pressed in a
    field."""

    entered = Signal()

    def __init__(self, taken: Callable[[str], bool], parent: QWidget | None = None) -> None:
        """Create the form; `taken(name)` returns whether a server name is in use."""
        super().__init__(parent)
        self._taken, self._own_name, self._editing = taken, False, ""
        self.address = SuggestField("Address", "user@host or SSH alias")
        self.name = TextField("Name", "box")
        self.transport = SegmentedField("Connection", TRANSPORTS)
        self.folder = TextField("Remote folder", "~/.atelier-engine", mono=True)
        self.engine = ChoiceField("Engine", ENGINES)
        self.offline = ChoiceField("Packages", PACKAGES)
        self._rows = {
            "address": FormRow(
                "address", "Address", self.address, label_px=LABEL_PX,
                help="Passed to ssh: jump hosts, keys and ports from ~/.ssh/config apply.",
            ),
            "name": FormRow("name", "Name", self.name, label_px=LABEL_PX,
                            help="Name of the server in Atelier."),
        }  # fmt: skip
        self._more = [
            FormRow("transport", "Connection", self.transport, label_px=LABEL_PX,
                    help="System ssh supports hardware keys, Kerberos and custom ProxyCommands."),
            FormRow("folder", "Remote folder", self.folder, label_px=LABEL_PX,
                    help="Installation folder on the server; use a large local disk."),
            FormRow("engine", "Engine", self.engine, label_px=LABEL_PX,
                    help="Engine to install on the server."),
            FormRow("offline", "Packages", self.offline, label_px=LABEL_PX,
                    help="Choose upload if the server cannot reach the package index."),
        ]  # fmt: skip
        self._fold = Button("Advanced", "quiet", icon="chevron-right", height=28)
        self._build()

    def begin(self, spec: HostSpec | None = None) -> None:
        """Clear the form, or fill it with the settings of an existing server."""
        self._editing = spec.name if spec else ""
        self._own_name = spec is not None
        fresh = spec or HostSpec(name="x", address="x")
        self.address.set_value(spec.address if spec else "")
        self.name.set_value(spec.name if spec else "")
        self.transport.set_value(fresh.transport)
        self.folder.set_value(fresh.folder)
        self.engine.set_value(fresh.engine)
        self.offline.set_value(fresh.offline)
        for row in self._rows.values():
            row.set_problem("")
        self._rows["name"].set_locked("The name cannot be changed" if spec else "")
        self.unfold(spec is not None and spec != HostSpec(name=spec.name, address=spec.address))

    def set_known(self, aliases: Sequence[str]) -> None:
        self.address.set_choices(aliases)

    def unfold(self, shown: bool) -> None:
        """Show or hide the advanced settings."""
        for row in self._more:
            row.setVisible(shown)
        self._fold.set_icon("chevron-down" if shown else "chevron-right")

    def spec(self) -> HostSpec | None:
        """Return the entered server, or None if the form is invalid."""
        address, name = self.address.value().strip(), self.name.value().strip()
        found = {}
        if name != self._editing and self._taken(name):
            found["name"] = f"A server named {name} already exists."
        try:
            spec = HostSpec(
                name=name, address=address, transport=self.transport.value(),
                folder=self.folder.value().strip(), engine=self.engine.value(),
                offline=self.offline.value(),
            )  # fmt: skip
        except ValidationError as error:
            found |= {str(one["loc"][0]): WRONG[str(one["loc"][0])] for one in error.errors()}
        for key, row in self._rows.items():
            row.set_problem(found.get(key, ""))
        if found:
            self._rows[next(iter(found))].field.setFocus()
            return None
        return spec

    def _build(self) -> None:
        column = vbox(parent=self, spacing=10)
        words = (
            "A Linux machine that you reach over SSH. Atelier surveys it before installing "
            "anything."
        )
        add(column, Text(words, "label", 400, "muted", wrap=True), *self._rows.values())
        column.addWidget(self._fold, 0, Qt.AlignmentFlag.AlignLeft)
        add(column, *self._more)
        self.address.edited.connect(self._addressed)
        self.name.edited.connect(lambda words: self._named(str(words)))
        self._fold.clicked.connect(lambda: self.unfold(self._more[0].isHidden()))
        for line in (self.address.line, self.name.editor):
            line.returnPressed.connect(self.entered)  # type: ignore[attr-defined]

    def _addressed(self, words: object) -> None:
        self._rows["address"].set_problem("")
        if not self._own_name:
            self.name.set_value(name_for(str(words)))
            self._rows["name"].set_problem("")

    def _named(self, words: str) -> None:
        self._own_name = bool(words)
        self._rows["name"].set_problem("")


def name_for(address: str) -> str:
    """Derive a server name from an address: mara@box.lab.example:2222 becomes box."""
    host = address.strip().rpartition("@")[2]
    if re.fullmatch(r"[0-9.]+(:\d+)?|\[?[0-9a-fA-F:]+\]?(:\d+)?", host) and not host.isalpha():
        kept = re.sub(r"[^A-Za-z0-9.]+", "-", host.rsplit(":", 1)[0] if "." in host else host)
    else:
        kept = re.sub(r"[^A-Za-z0-9_-]+", "-", host.partition(":")[0].partition(".")[0])
    return kept.strip("-._")[:63]
