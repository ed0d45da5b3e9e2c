"""`rubric.md` → Rubric: plain English, optionally with weighted criteria in YAML front matter."""

from pathlib import Path

import yaml

from engine.protocol.problems import ConfigError
from engine.protocol.records.judging import Criterion, Rubric
from engine.trust.files import MOST_TEXT_BYTES, read_regular

FENCE = "---"
MOST_FRONT_CHARS = 2**16
UNREADABLE = (RecursionError, ValueError, LookupError, TypeError, AttributeError)
"""Exceptions raised by PyYAML for deep nesting, or text that does not match its tag."""


class PlainLoader(yaml.SafeLoader):
    """YAML loader without aliases: a few lines of them can expand to gigabytes."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.MarkedYAMLError(problem="aliases are not allowed", problem_mark=mark)
        return super().compose_node(parent, index)


def load_rubric(file: Path) -> Rubric:
    """Load a rubric from a file. Raises ConfigError."""
    try:
        source = read_regular(file, MOST_TEXT_BYTES).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        raise ConfigError.of(
            "rubric.unreadable",
            "The rubric cannot be read.",
            "Use a UTF-8 text file that describes a good result in plain English.",
            where=str(file),
            detail=str(error),
        ) from error
    return parse_rubric(source, str(file))


def parse_rubric(source: str, where: str = "rubric.md") -> Rubric:
    """Parse the text of a rubric; front matter may list `criteria` (name, weight, words). `where`
    names the file in the ConfigError for an invalid one."""
    lines = source.replace("\r\n", "\n").split("\n")
    if lines[0].strip() != FENCE:
        return Rubric(source=source, text=source.strip())
    closing = next((i for i, line in enumerate(lines[1:], 1) if line.strip() == FENCE), None)
    if closing is None:
        raise _wrong("its front matter has no closing --- line", where, 1)
    criteria = _criteria("\n".join(lines[1:closing]), where)
    text = "\n".join(lines[closing + 1 :]).strip()
    return Rubric(source=source, text=text, criteria=criteria)


def _criteria(front: str, where: str) -> tuple[Criterion, ...]:
    if len(front) > MOST_FRONT_CHARS:
        raise _wrong(f"its front matter is longer than {MOST_FRONT_CHARS} characters", where, 1)
    try:
        data = yaml.load(front, PlainLoader) or {}
    except UNREADABLE as error:
        raise _wrong("its front matter has an unreadable value", where, 1) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 2 if mark else 1
        raise _wrong("its front matter is not YAML", where, line) from error
    if not isinstance(data, dict) or set(data) - {"criteria"}:
        raise _wrong("its front matter may contain only `criteria`", where, 1)
    entries = data.get("criteria") or []
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise _wrong("`criteria` is not a list of name, weight and words", where, 1)
    try:
        criteria = tuple(Criterion.model_validate(entry) for entry in entries)
    except ValueError as error:
        first = str(error).splitlines()[1:3]
        raise _wrong(f"a criterion is invalid: {' '.join(first)}", where, 1) from error
    names = [criterion.name for criterion in criteria]
    if len(set(names)) < len(names):
        raise _wrong("two criteria have the same name", where, 1)
    return criteria


def _wrong(what: str, where: str, line: int) -> ConfigError:
    return ConfigError.of(
        "rubric.wrong",
        f"The rubric cannot be used: {what}.",
        "Put `criteria:` with `- {name: …, weight: …, words: …}` between two lines of ---.",
        where=f"{where}:{line}",
    )
