"""Documentation pages of `resources/help`: order, titles, text, links and search; no Qt.

`resources/help/zensical.toml` decides order and groups, for the help window and for the static site
that `packaging/docs.py` builds. Standard library only, so that any Python can render the pages.
"""

import posixpath
import re
import shutil
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.protocol.config.presets import PRESETS
from engine.protocol.records.art_names import NAMES
from engine.protocol.records.metrics import METRICS, Metric
from studio.runtime.paths import resource

NAV = "zensical.toml"
LINK = re.compile(r"\]\(([^)\s]+)\)")
"""The target of a Markdown link."""
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Page:
    """One documentation page; `path` is relative to the help folder, with forward slashes."""

    path: str
    group: str
    """Title of its group; empty for the start page."""
    text: str
    """Markdown with all tables filled in."""

    @property
    def title(self) -> str:
        return self.text.partition("\n")[0].removeprefix("# ")

    def links(self) -> list[str]:
        """Targets of all links outside code blocks."""
        return LINK.findall(FENCE.sub("", self.text))


def help_folder() -> Path:
    return resource("help")


def load_pages(folder: Path | None = None) -> list[Page]:
    """All pages in the order of the navigation."""
    folder = folder or help_folder()
    tables = {"{{metrics}}": metrics_tables, "{{names}}": names_table, "{{presets}}": presets_table}
    pages = []
    for group, path in navigation(folder):
        text = (folder / path).read_text("utf-8")
        for mark, table in tables.items():
            if mark in text:
                text = text.replace(mark, table())
        pages.append(Page(path, group, text))
    return pages


def write_pages(folder: Path) -> None:
    """Write all pages into `folder`/docs, and the navigation beside it: the input of the site."""
    for page in load_pages():
        file = folder / "docs" / page.path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(page.text, "utf-8")
    shutil.copy(help_folder() / NAV, folder / NAV)


def navigation(folder: Path) -> list[tuple[str, str]]:
    """(group, path) of every page."""
    nav = tomllib.loads((folder / NAV).read_text("utf-8"))["project"]["nav"]
    matches = []
    for entry in nav:
        if isinstance(entry, str):
            matches.append(("", entry))
        else:
            matches += [(group, path) for group, paths in entry.items() for path in paths]
    return matches


def resolve(page: Page, target: str) -> tuple[str, str]:
    """(path, anchor) of a relative link on a page; the path is empty for an external link."""
    if "://" in target or target.startswith("mailto:"):
        return "", ""
    path, _, anchor = target.partition("#")
    full = posixpath.normpath(posixpath.join(posixpath.dirname(page.path), path))
    return (full if path else page.path), anchor


def slug(heading: str) -> str:
    """Anchor of a heading, as in Python-Markdown."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


def search(pages: Sequence[Page], words: str) -> list[Page]:
    """Pages that contain every word, in any case: first those with all words in the title, then in
    the order of the navigation. No words match every page."""
    terms = words.lower().split()
    matches = [page for page in pages if all(word in page.text.lower() for word in terms)]
    return sorted(matches, key=lambda page: not all(word in page.title.lower() for word in terms))


def names_table() -> str:
    """Table of ART's metric names and the metrics here."""
    rows = ["| ART | Atelier |", "|---|---|"]
    for name in NAMES:
        ours = " and ".join(name.ours).replace("*", "NAME")
        how = f": {name.how}" if name.how else ""
        rows.append(f"| {name.art.replace('*', 'NAME')} | {ours}{how} |")
    return "\n".join(rows)


def presets_table() -> str:
    """Table of all presets of `[train.algorithm]`."""
    rows = [f"| {name} | {preset.when} |" for name, preset in PRESETS.items()]
    return "\n".join(["| preset | when to use it |", "|---|---|", *rows])


def metrics_tables() -> str:
    """A table for each group of metrics: name, unit, meaning and threshold."""
    tables = []
    for group in dict.fromkeys(metric.group for metric in METRICS):
        rows = [_row(metric) for metric in METRICS if metric.group == group]
        tables.append(
            "\n".join([f"## {group}\n", "| name | unit | meaning |", "|---|---|---|", *rows])
        )
    return "\n\n".join(tables)


def _row(metric: Metric) -> str:
    name = metric.key.replace("*", "NAME")
    worry = f" *Watch for: {metric.worry}.*" if metric.worry else ""
    return f"| {name} | {metric.unit} | {metric.words}{worry} |"
