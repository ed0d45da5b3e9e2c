"""Completions sampled for a script, until it submits them: exact tokens by completion id.

Many rollouts share one key, so only the id of a completion identifies it. A completion that
continues another one stores only its new tokens. All are also written to a file of the run, so that
they survive a crash. Completions that are not submitted are deleted after `KEPT_UPDATES` further
updates, or when more than `MOST_TOKENS` wait. The file is append-only until most of it is obsolete.
"""

import asyncio
import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine.protocol.problems import StoreError
from engine.protocol.records.conversations import ImageSpan
from engine.runtime.files import sync_open
from engine.storage.checkpoints.checkpoint import FULL

KEPT_UPDATES = 4
MOST_TOKENS = 20_000_000
LEAST_SPENT = 1_000_000
"""Minimum number of deleted tokens (about 30 MB) before the file is compacted."""


class CompletionPart(BaseModel):
    """Consecutive sampled tokens of a completion."""

    model_config = ConfigDict(frozen=True)

    sampled: list[int]
    logprobs: list[float]
    """Natural logarithm, one per sampled token."""
    grammar: str | None = None
    """Grammar that they were sampled under."""
    forced: list[int] = Field(default_factory=list)
    """Tokens before them that close the reasoning at the thinking budget."""


class Completion(BaseModel):
    """A sampled completion with its tokens."""

    model_config = ConfigDict(frozen=True)

    id: str
    parent: str = ""
    """Id of the completion that this one continues; empty at the start of a sequence."""
    version: int
    """Number of updates of the weights that sampled it."""
    prompt: list[int]
    """Tokens from the end of the parent (or the start) up to the answer."""
    parts: list[CompletionPart]
    """Tokens of the answer: one part, or two if forced tokens closed its reasoning."""
    images: list[ImageSpan] = Field(default_factory=list)
    """Images among the tokens after those of the parent, by their places in the whole sequence."""
    digest: str
    """Digest of the request's messages and the answer."""
    reasoning: str
    content: str
    settings: str
    """Tools and template variables of the request, in canonical form."""
    text: str
    """Text after that of the parent, special tokens included."""
    temperature: float
    top_p: float
    truncated: bool
    tools: list[dict[str, Any]] = Field(default_factory=list)

    @property
    def answer(self) -> list[int]:
        """Tokens behind the prompt, with the forced ones."""
        return [token for part in self.parts for token in (*part.forced, *part.sampled)]

    @property
    def logprobs(self) -> list[float]:
        """Natural logarithm, one per sampled token of all parts."""
        return [value for part in self.parts for value in part.logprobs]


class CompletionWithHistory(BaseModel):
    """All tokens of a completion, including those before it."""

    tokens: list[int]
    start: int
    """Index of the first token of the answer, which ends the sequence."""
    text: str
    images: list[ImageSpan]


class DeletedCompletions(BaseModel):
    """Line of the file that deletes these earlier completions."""

    model_config = ConfigDict(frozen=True)

    forgotten: list[str]


class Entry:
    """A completion with values computed from it once."""

    def __init__(self, completion: Completion) -> None:
        self.completion = completion
        self.tokens = len(completion.prompt) + len(completion.answer)
        words = [f"token_id:{token}" for part in completion.parts for token in part.sampled]
        self.sampling = fingerprint(words, completion.logprobs)


class CompletionIndex:
    """Index of completions. It only grows (deletion makes a new one), so another thread may read
    it."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.entries: dict[str, Entry] = {}
        """Completions by id, in the order of arrival."""
        self._by_words: dict[str, str] = {}
        self._by_sampling: dict[str, str] = {}
        self.tokens = 0
        for one in entries:
            self.add(one)

    def add(self, one: Entry) -> None:
        name = one.completion.id
        self.entries[name] = one
        self._by_words[one.completion.digest] = name
        self._by_sampling[one.sampling] = name
        self.tokens += one.tokens

    def get(self, name: str) -> Completion | None:
        found = self.entries.get(name)
        return found.completion if found else None

    def after(self, messages_digest: str) -> Completion | None:
        """Newest completion at the end of the conversation with this digest (see `digest`); None if
        there is none."""
        return self.get(self._by_words.get(messages_digest, ""))

    def sampled_as(self, tokens: Sequence[str], logprobs: Sequence[float]) -> Completion | None:
        """Return the completion with these tokens (written `token_id:N`) and log-probs, or None."""
        return self.get(self._by_sampling.get(fingerprint(tokens, logprobs), ""))

    def whole(self, one: Completion) -> CompletionWithHistory:
        chain = [one]
        while chain[-1].parent:
            chain.append(self.entries[chain[-1].parent].completion)
        chain.reverse()
        tokens = [token for each in chain for token in (*each.prompt, *each.answer)]
        text = "".join(each.text for each in chain)
        return CompletionWithHistory(
            tokens=tokens,
            start=len(tokens) - len(one.answer),
            text=text,
            images=[image for each in chain for image in each.images],
        )


class Completions:
    """File and index of completions. Use it in one event loop; a thread may read `held`."""

    def __init__(self, file: Path) -> None:
        """Load the file if it exists. Raises StoreError if it is damaged."""
        self._file = file
        self.held = CompletionIndex()
        self._spent = 0
        """Number of deleted tokens in the file."""
        self._tail: list[str] | None = None
        """Lines written while the file is being compacted; None otherwise."""
        self._load()

    def __len__(self) -> int:
        return len(self.held.entries)

    def add(self, one: Completion) -> None:
        """Append a completion to the file and the index, before it is returned to the client."""
        self._write(one)
        self.held.add(Entry(one))
        if self.held.tokens > MOST_TOKENS:
            self.forget_before(one.version)

    def forget_before(self, updates: int) -> None:
        """Delete completions that are older than `KEPT_UPDATES` updates (`updates`: made so far),
        and the oldest above `MOST_TOKENS`. A completion that a kept one continues is kept too.
        Deletion is recorded in the file."""
        wanted: set[str] = set()
        room = MOST_TOKENS * 9 // 10
        for entry in reversed(self.held.entries.values()):
            one = entry.completion
            if one.id not in wanted and (updates - one.version > KEPT_UPDATES or room <= 0):
                continue
            while one.id not in wanted:
                wanted.add(one.id)
                room -= self.held.entries[one.id].tokens
                if not one.parent:
                    break
                one = self.held.entries[one.parent].completion
        names = [name for name in self.held.entries if name not in wanted]
        if names:
            self._write(DeletedCompletions(forgotten=names))
            before, entries = self.held.tokens, self.held.entries.values()
            self.held = CompletionIndex(one for one in entries if one.completion.id in wanted)
            self._spent += before - self.held.tokens

    async def compact(self) -> None:
        """Rewrite the file without deleted completions, if most of it is obsolete. A thread writes
        a copy; completions of the meantime are appended, then it is renamed. On a full disk the
        file stays, and the next call tries again."""
        if self._spent <= max(LEAST_SPENT, self.held.tokens):
            return
        beside, spent, self._tail = self._file.with_suffix(".new"), self._spent, []
        kept = [one.completion for one in self.held.entries.values()]
        writing = asyncio.create_task(asyncio.to_thread(write_lines, beside, kept))
        try:
            await asyncio.shield(writing)
            with beside.open("a", encoding="utf-8") as target:
                target.writelines(self._tail)
            beside.replace(self._file)
            self._spent -= spent
        except OSError as error:
            if error.errno not in FULL:
                raise
        finally:
            await asyncio.gather(writing, return_exceptions=True)  # no thread can be cancelled
            self._tail = None
            beside.unlink(missing_ok=True)

    def _write(self, line: Completion | DeletedCompletions) -> None:
        text = line.model_dump_json() + "\n"
        with self._file.open("a", encoding="utf-8") as target:
            target.write(text)
        if self._tail is not None:
            self._tail.append(text)

    def _load(self) -> None:
        """Read the file. An incomplete last line is cut off: its completion was never returned."""
        if not self._file.exists():
            return
        raw = self._file.read_bytes()
        whole, _, torn = raw.rpartition(b"\n")
        known: dict[str, Completion] = {}
        try:
            for line in whole.split(b"\n") if whole else []:
                self._take(line, known)
        except (ValidationError, KeyError) as error:
            raise StoreError.of(
                "outside.damaged",
                "The stored completions of the script cannot be read.",
                "Remove the file; this loses the rollouts that were not yet submitted.",
                where=str(self._file),
                detail=str(error)[:1000],
            ) from error
        self.held = CompletionIndex(map(Entry, known.values()))
        if torn:
            with self._file.open("r+b") as file:
                file.truncate(len(raw) - len(torn))

    def _take(self, line: bytes, known: dict[str, Completion]) -> None:
        if not line.startswith(b'{"forgotten":'):
            one = Completion.model_validate_json(line)
            known[one.id] = one
            return
        for name in DeletedCompletions.model_validate_json(line).forgotten:
            gone = known.pop(name)
            self._spent += len(gone.prompt) + len(gone.answer)


def write_lines(file: Path, completions: Iterable[Completion]) -> None:
    with file.open("w", encoding="utf-8") as target:
        target.writelines(one.model_dump_json() + "\n" for one in completions)
        sync_open(target)


def digest(before: str, message: str) -> str:
    """Hash of a conversation up to `message`, included; `before` is the hash of the earlier
    messages."""
    return hashlib.blake2b(f"{before}\0{message}".encode(), digest_size=16).hexdigest()


def fingerprint(tokens: Sequence[str], logprobs: Sequence[float]) -> str:
    """Hash of tokens and log-probs of one completion; JSON keeps every digit of a log-prob."""
    body = json.dumps([list(tokens), list(logprobs)])
    return hashlib.blake2b(body.encode(), digest_size=16).hexdigest()
