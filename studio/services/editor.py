"""Opening a file at a line: in the person's editor if it is known, else by the desktop.

Nothing is passed through a shell: the program is looked up, and the file is one argument."""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QProcess, QUrl
from PySide6.QtGui import QDesktopServices

from engine.protocol.problems import Problem

PLACE = re.compile(r"(?P<file>[^\n]{1,400}?), line (?P<line>\d{1,7})\b")
GO_TO, FILE_AND_LINE, PLUS = ("-g", "{file}:{line}"), ("{file}:{line}",), ("+{line}", "{file}")
LINE_OPTION = ("--line", "{line}", "{file}")
EDITORS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("code", "code-insiders", "codium", "cursor", "windsurf"), GO_TO),
    **dict.fromkeys(("subl", "zed", "zeditor"), FILE_AND_LINE),
    **dict.fromkeys(("gvim", "gedit", "gnome-text-editor", "pluma", "xed", "geany"), PLUS),
    **dict.fromkeys(("pycharm", "idea", "kate", "kwrite"), LINE_OPTION),
}
"""Program → arguments that open a file at a line. Programs of a terminal are not listed."""
UNASKED = ("code", "codium", "cursor")
"""Editors that are used without being named in $VISUAL or $EDITOR, if they are installed."""


@dataclass(frozen=True)
class CodePlace:
    """Line of a file of a project."""

    file: Path
    line: int

    def __str__(self) -> str:
        return f"{self.file.name}:{self.line}"


def place_of(problem: Problem, project: str) -> CodePlace | None:
    """Return the file and line that a problem names, if it is a file inside the project folder."""
    found = PLACE.match(problem.where)
    if found is None or not project:
        return None
    root = Path(project).resolve()
    try:
        file = (root / found["file"]).resolve()
        inside = file.is_relative_to(root) and file.is_file()
    except (OSError, ValueError):  # a name that no file can have
        return None
    return CodePlace(file, int(found["line"])) if inside else None


def command_for(place: CodePlace, variables: Mapping[str, str]) -> list[str]:
    """Return the command line that opens a file at a line: of the editor in $VISUAL or $EDITOR, or
    of an installed one. Empty if none is known to open a line. `variables`: the environment."""
    for wanted in (variables.get("VISUAL", ""), variables.get("EDITOR", ""), *UNASKED):
        try:
            name = next(iter(shlex.split(wanted)), "")
        except ValueError:  # a quotation mark is not closed
            continue
        form = EDITORS.get(Path(name).name)
        program = shutil.which(name, path=variables.get("PATH")) if form else None
        if form and program:
            return [program, *(part.format(file=place.file, line=place.line) for part in form)]
    return []


def open_place(place: CodePlace) -> None:
    """Open a file at its line in an editor. Without a known editor, open the file on Linux,
    elsewhere its folder, because opening a script there may run it."""
    command = command_for(place, os.environ)
    if command and QProcess.startDetached(command[0], command[1:])[0]:
        return
    shown = place.file if sys.platform == "linux" else place.file.parent
    QDesktopServices.openUrl(QUrl.fromLocalFile(str(shown)))
