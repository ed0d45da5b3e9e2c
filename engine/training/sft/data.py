"""Convert files of demonstrations into training and held-out examples.

Each trained answer, with its end token, is a span. A conversation is one sequence as long as the
chat template only appends to it. If the template rewrites earlier turns (for example by dropping
reasoning), the next answer starts a new sequence, as in a rollout.
"""

import os
import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from engine.policy.base import TrainItem
from engine.protocol.config.project import ProjectConfig
from engine.protocol.problems import AtelierError, ConfigError, Problem, StoreError
from engine.protocol.records.demonstrations import (
    BadLine,
    DemonstrationFile,
    Role,
    SupervisedPlan,
    Tally,
)
from engine.rollout.rendering.chat import ChatFormat
from engine.runtime.files import replace_file
from engine.runtime.seeds import derive
from engine.training.labels.gold import FILE as GOLD
from engine.training.sft.formats import Example, read_line
from engine.training.sft.schedule import updates_of
from engine.training.step.batch import trained_tokens
from engine.trust.files import project_file, read_regular


def render(example: Example, chat: ChatFormat, max_context: int) -> list[TrainItem]:
    """Tokenize an example into sequences of at most `max_context` tokens. Raises ValueError with
    the reason if it is unusable."""
    try:
        items = _conversation(example, chat) if example.messages else [_plain(example, chat)]
    except AtelierError as error:
        raise ValueError(error.problem.message) from error
    longest = max(len(item.tokens) for item in items)
    if longest > max_context:
        raise ValueError(
            f"The demonstration has {longest} tokens; model.max_context is {max_context}."
        )
    return items


def _plain(example: Example, chat: ChatFormat) -> TrainItem:
    """Tokenize plain text without a chat template, with an end token as in TRL. Without a prompt,
    all tokens but the first are trained."""
    answer = example.answer
    answer += "" if answer.endswith(chat.end) else chat.end
    if example.form == "text":
        tokens = chat.encode(answer, special=True)
        start = 1
    else:
        prompt = chat.encode(example.prompt, special=True)
        tokens = prompt + chat.encode(answer)
        start = max(1, len(prompt))
    if start >= len(tokens):
        raise ValueError("The demonstration has a single token, so there is no token to predict.")
    return TrainItem(tokens=tokens, spans=[(start, len(tokens))])


def _conversation(example: Example, chat: ChatFormat) -> list[TrainItem]:
    found: list[TrainItem] = []
    tokens: list[int] = []
    spans: list[tuple[int, int]] = []
    text = ""
    for place in sorted(example.learned):
        before, answer = _answer(example, chat, place)
        if not before.startswith(text):
            found.append(TrainItem(tokens=tokens, spans=spans))
            tokens, spans, text = [], [], ""
        tokens = tokens + chat.encode(before[len(text) :])
        ended = [*tokens, *chat.encode(answer)]
        spans = [*spans, (len(tokens), len(ended))]
        tokens, text = ended, before + answer
    return [*found, TrainItem(tokens=tokens, spans=spans)]


def _answer(example: Example, chat: ChatFormat, place: int) -> tuple[str, str]:
    """Return as rendered text the prompt before the assistant message with index `place`, and the
    message as the model should generate it. Raises ValueError if the template cannot do this."""
    messages, tools = example.messages, example.tools
    before = chat.render(messages[:place], tools, answer=True)
    after, end = chat.render_answered(messages[: place + 1], tools)
    if not after.startswith(before):
        raise ValueError(
            f"The chat template starts message {place + 1} differently from its generation prompt."
        )
    answer = after[len(before) : end]
    for call in messages[place].get("tool_calls") or []:
        if call["function"]["name"] not in answer:
            raise ValueError(
                f"The model's chat template leaves out the tool calls of message {place + 1}."
            )
    if not answer:
        raise ValueError(f"The chat template leaves out message {place + 1}.")
    return before, answer


MOST_BYTES = 2**32
"""Size limit of a file of demonstrations."""
SHOWN, NAMED = 50, 3
"""Default number of bad lines in a list, and number of those quoted in a message."""
TRAIN, HELD_OUT = "demonstrations.jsonl", "held_out.jsonl"
"""Names of the demonstration files in the folder of an SFT run."""


class Entry(NamedTuple):
    """Valid line of a file of demonstrations."""

    line: bytes
    beginning: str
    """Key of the prompt; examples with the same prompt are held out together."""
    items: list[TrainItem]


class Source(NamedTuple):
    """File of demonstrations, and its valid lines."""

    file: DemonstrationFile
    entries: list[Entry]


class Data(NamedTuple):
    """Files, training and held-out examples of an SFT run."""

    files: list[DemonstrationFile]
    train: list[Entry]
    held_out: list[Entry]


def read_source(
    file: Path, role: Role, project: Path, chat: ChatFormat, context: int, shown: int | None = SHOWN
) -> Source:
    """Read all lines of a demonstrations file. `role` is its use in the run, `context` the maximum
    tokens per demonstration, `shown` the maximum number of bad lines returned (None: all)."""
    inside = file.is_relative_to(project)
    about = DemonstrationFile(
        path=os.path.relpath(file, project) if inside else str(file), role=role
    )
    try:
        content = read_regular(file, MOST_BYTES)
    except (OSError, ValueError) as error:
        problem = _unreadable(file, role, error)
        return Source(about.model_copy(update={"problem": problem}), [])
    entries: list[Entry] = []
    bad: list[BadLine] = []
    forms: Counter[str] = Counter()
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            example = read_line(line)
            entries.append(Entry(line, example.beginning, render(example, chat, context)))
            forms[example.form] += 1
        except ValueError as error:
            bad.append(BadLine(file=about.path, line=number, reason=str(error)))
    found = {
        "lines": len(entries) + len(bad),
        "forms": dict(forms),
        "tally": tally(entries),
        "bad": bad[:shown],
        "bad_count": len(bad),
    }
    return Source(about.model_copy(update=found), entries)


def collect(
    project: Path, config: ProjectConfig, chat: ChatFormat, shown: int | None = SHOWN
) -> Data:
    """Read training and held-out examples for an SFT run; bad lines and unreadable files are part
    of the result, with up to `shown` bad lines per file (None: all)."""
    sft, context = config.sft, config.model.max_context
    project = project.resolve()
    wanted: list[tuple[Path, Role]] = [(project_file(project, sft.data, "sft.data"), "train")]
    gold = project_file(project, GOLD, GOLD)
    if sft.gold and gold.is_file() and gold != wanted[0][0]:
        wanted.append((gold, "gold"))
    if sft.validation:
        wanted.append((project_file(project, sft.validation, "sft.validation"), "validation"))
    sources = [read_source(file, role, project, chat, context, shown) for file, role in wanted]
    learned = [e for source in sources if source.file.role != "validation" for e in source.entries]
    measured = [e for source in sources if source.file.role == "validation" for e in source.entries]
    if not sft.validation:
        learned, measured = split(learned, sft.held_out, config.train.seed)
    return Data([source.file for source in sources], learned, measured)


def split(entries: list[Entry], share: float, seed: int) -> tuple[list[Entry], list[Entry]]:
    """Return (training, held-out) entries. About `share` (0 to 1) of the different prompts, drawn
    by `seed`, are held out: at least one and not all; none if `share` is 0 or there is only one
    prompt. All answers to a prompt are in the same part."""
    questions = list(dict.fromkeys(entry.beginning for entry in entries))
    count = max(1, round(share * len(questions))) if share and len(questions) > 1 else 0
    count = min(count, len(questions) - 1)
    drawn = set(random.Random(derive(seed, "held out")).sample(questions, max(0, count)))
    learned = [entry for entry in entries if entry.beginning not in drawn]
    return learned, [entry for entry in entries if entry.beginning in drawn]


def refusal(files: Iterable[DemonstrationFile], skip: bool, hint: str = "") -> Problem | None:
    """Return the problem if one of the files cannot be read, or has bad lines and `skip` is not
    set; otherwise None. The message quotes the first bad lines, followed by `hint` or a default
    hint."""
    files = list(files)
    if broken := next((file.problem for file in files if file.problem), None):
        return broken
    spoilt = [file for file in files if file.bad_count]
    if skip or not spoilt:
        return None
    first = spoilt[0]
    lines = [f"line {one.line}: {one.reason}" for one in first.bad[:NAMED]]
    more = sum(file.bad_count for file in spoilt) - len(lines)
    of = f"{first.bad_count} of the {first.lines} lines of {first.path}"
    return Problem(
        code="demonstrations.bad_lines",
        message=f"{of} cannot be used for training. {' '.join(lines)}"
        + (f" {more} more." if more else ""),
        hint=hint or "Fix these lines, or skip them: --set sft.skip_bad_lines=true.",
        where=f"{first.path}, line {first.bad[0].line}",
    )


def refuse(project: Path, config: ProjectConfig, data: Data) -> None:
    """Raise ConfigError if an SFT run of `project` cannot start with this data: a file is
    unreadable, has bad lines (unless `sft.skip_bad_lines`), or no training example is left."""
    if problem := refusal(data.files, config.sft.skip_bad_lines):
        raise ConfigError(problem)
    if not data.train:
        raise ConfigError.of(
            "demonstrations.empty",
            "There is no demonstration to train on.",
            'Write lines such as {"messages": [{"role": "user", "content": "…"}, …]}.',
            where=str(project / config.sft.data),
        )


def plan_of(config: ProjectConfig, data: Data) -> SupervisedPlan:
    """Sizes of an SFT run's data and its number of updates, for run.json."""
    sft = config.sft
    return SupervisedPlan(
        train=tally(data.train),
        held_out=tally(data.held_out),
        updates=updates_of(len(data.train), sft.batch_size, sft.epochs),
        files=[file.path for file in data.files],
        skipped=sum(file.bad_count for file in data.files),
    )


def tally(entries: Iterable[Entry]) -> Tally:
    entries = list(entries)
    items = [item for entry in entries for item in entry.items]
    return Tally(
        examples=len(entries),
        tokens=sum(len(item.tokens) for item in items),
        trained=sum(trained_tokens(item) for item in items),
        longest=max((len(item.tokens) for item in items), default=0),
    )


# What a run keeps: it learns the same when it is resumed, whatever has become of the files


def store_examples(folder: Path, data: Data) -> None:
    for name, entries in ((TRAIN, data.train), (HELD_OUT, data.held_out)):
        text = b"".join(entry.line.strip() + b"\n" for entry in entries).decode("utf-8-sig")
        replace_file(folder / name, text)


def stored_examples(
    folder: Path, chat: ChatFormat, context: int
) -> tuple[list[Entry], list[Entry]]:
    """(training, held-out) examples stored with a run. Raises StoreError if they cannot be read."""
    found = []
    for name in (TRAIN, HELD_OUT):
        source = read_source(folder / name, "train", folder, chat, context)
        if problem := refusal([source.file], skip=False):
            raise StoreError.of(
                "demonstrations.changed",
                "The demonstrations stored with this run cannot be read.",
                "Start a new SFT run.",
                where=str(folder / name),
                detail=problem.message,
            )
        found.append(source.entries)
    return found[0], found[1]


def _unreadable(file: Path, role: Role, error: OSError | ValueError) -> Problem:
    setting = {"train": "sft.data", "validation": "sft.validation", "gold": "sft.gold"}[role]
    missing = isinstance(error, FileNotFoundError)
    return Problem(
        code="demonstrations.missing" if missing else "demonstrations.unreadable",
        message=f"The project has no demonstration file {file.name}."
        if missing
        else f"The demonstrations cannot be read: {getattr(error, 'strerror', None) or error}.",
        hint=f"Create the file with `atelier distill` or by hand, or change {setting}.",
        where=str(file),
    )
