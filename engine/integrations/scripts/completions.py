"""Completions sampled for a script, until it submits them: exact tokens by completion id.

Many rollouts use one key, so only the id of a completion says whose it is. A completion that
continues another one stores only its own part. All are also written to a file of the run, so that
they survive a kill. Completions that are not submitted are deleted after `KEPT_UPDATES` further
updates, or when more than `MOST_TOKENS` wait. The file is appended to, line by line, until most of
it is obsolete.
"""

import asyncio
import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine.protocol.problems import StoreError
from engine.runtime.files import sync_open
from engine.storage.checkpoints.checkpoint import FULL

KEPT_UPDATES = 4
MOST_TOKENS = 20_000_000
LEAST_SPENT = 1_000_000
"""Tokens of forgotten ones that the file may hold: some 30 MB."""


class Completion(BaseModel):
    """Completion of the policy."""

    model_config = ConfigDict(frozen=True)

    id: str
    parent: str = ""
    """The completion whose tokens its own follow; empty where they begin a sequence."""
    version: int
    """Updates behind the weights that sampled it."""
    prompt: list[int]
    """Tokens between the parent's end, or the beginning, and the first that was sampled."""
    sampled: list[int]
    logprobs: list[float]
    """Natural logarithm, one per sampled token."""
    said: str
    """Digest of the request's messages and the answer."""
    raw: str
    """The answer exactly as sampled, without the end token."""
    text: str
    """Text added to the parent's text, special tokens included."""
    temperature: float
    top_p: float
    truncated: bool
    tools: list[dict[str, Any]] = Field(default_factory=list)


class CompletionWithHistory(BaseModel):
    """A completion with everything before it."""

    tokens: list[int]
    start: int
    """Position of the sampled tokens, which end the sequence."""
    text: str


class DeletedCompletions(BaseModel):
    """A line of the file: these, which stand before it, are not known any more."""

    model_config = ConfigDict(frozen=True)

    forgotten: list[str]


class Entry:
    """A completion, and what is worked out of it once."""

    def __init__(self, completion: Completion) -> None:
        self.completion = completion
        self.tokens = len(completion.prompt) + len(completion.sampled)
        words = [f"token_id:{token}" for token in completion.sampled]
        self.sampling = fingerprint(words, completion.logprobs)


class CompletionIndex:
    """Index of completions that only grows between two deletions, so that another thread may read
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
        self._by_words[one.completion.said] = name
        self._by_sampling[one.sampling] = name
        self.tokens += one.tokens

    def get(self, name: str) -> Completion | None:
        found = self.entries.get(name)
        return found.completion if found else None

    def after(self, said: str) -> Completion | None:
        """The newest one whose messages and answer have this digest."""
        return self.get(self._by_words.get(said, ""))

    def sampled_as(self, tokens: Sequence[str], logprobs: Sequence[float]) -> Completion | None:
        """The one that these tokens (`token_id:N`) with these log-probs are."""
        return self.get(self._by_sampling.get(fingerprint(tokens, logprobs), ""))

    def whole(self, one: Completion) -> CompletionWithHistory:
        chain = [one]
        while chain[-1].parent:
            chain.append(self.entries[chain[-1].parent].completion)
        chain.reverse()
        tokens = [token for each in chain for token in (*each.prompt, *each.sampled)]
        text = "".join(each.text for each in chain)
        return CompletionWithHistory(tokens=tokens, start=len(tokens) - len(one.sampled), text=text)


class Completions:
    """Open it with the run's file. One event loop uses it; a thread may read what is `held`."""

    def __init__(self, file: Path) -> None:
        """Raises StoreError where the file is not one of ours."""
        self._file = file
        self.held = CompletionIndex()
        self._spent = 0
        """Tokens of those in the file that are forgotten."""
        self._tail: list[str] | None = None
        """Lines that came while the file is written anew."""
        self._load()

    def __len__(self) -> int:
        return len(self.held.entries)

    def add(self, one: Completion) -> None:
        """Written to the file before it is answered."""
        self._write(one)
        self.held.add(Entry(one))
        if self.held.tokens > MOST_TOKENS:
            self.forget_before(one.version)

    def forget_before(self, updates: int) -> None:
        """Delete completions that were sampled more than `KEPT_UPDATES` updates before `updates`,
        the current number, and the oldest above `MOST_TOKENS`. A completion that a kept one
        continues is kept too. Deletion is recorded in the file."""
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
        """Write the file anew where most of it is forgotten: beside it, in a thread, and renamed
        when it holds what came meanwhile, too. One at a time. On a full disk the file stays, and
        the next call tries again."""
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
        """The last line may be torn: its completion was never answered."""
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
                "What was sampled for the script cannot be read.",
                "Remove the file: attempts that are not handed in yet are lost with it.",
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
            self._spent += len(gone.prompt) + len(gone.sampled)


def write_lines(file: Path, completions: Iterable[Completion]) -> None:
    """Returns when it is on disk."""
    with file.open("w", encoding="utf-8") as target:
        target.writelines(one.model_dump_json() + "\n" for one in completions)
        sync_open(target)


def digest(before: str, message: str) -> str:
    """Hash of the messages up to and with this one; `before` is the hash of the earlier ones."""
    return hashlib.blake2b(f"{before}\0{message}".encode(), digest_size=16).hexdigest()


def fingerprint(tokens: Sequence[str], logprobs: Sequence[float]) -> str:
    """Fingerprint of one completion: JSON keeps every digit of a log-prob."""
    body = json.dumps([list(tokens), list(logprobs)])
    return hashlib.blake2b(body.encode(), digest_size=16).hexdigest()
