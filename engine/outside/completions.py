"""What was sampled for a script, until it is handed in: exact tokens by the name of the completion.

Many attempts ask under one key, so nothing but a completion's name says whose it is. A completion
that goes on from another one keeps only what came after it. All of them are also written to a file
of the run, so that an engine that was killed knows what it has answered. What is not handed in is
forgotten: after `KEPT_UPDATES` further updates, or when more than `MOST_TOKENS` wait.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine.project import write_atomically
from engine.protocol.problems import StoreError

KEPT_UPDATES = 4
MOST_TOKENS = 20_000_000


class Completion(BaseModel):
    """One answer of the policy."""

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
    """What it adds to its parent's text, special tokens included."""
    temperature: float
    top_p: float
    truncated: bool
    tools: list[dict[str, Any]] = Field(default_factory=list)


class Whole(BaseModel):
    """A completion with everything before it."""

    tokens: list[int]
    start: int
    """Of the sampled tokens, which end the sequence."""
    text: str


class Completions:
    """Open it with the run's file. One event loop uses it."""

    def __init__(self, file: Path) -> None:
        """Raises StoreError where the file is not one of ours."""
        self._file = file
        self._known: dict[str, Completion] = {}
        self._by_words: dict[str, str] = {}
        self._by_sampling: dict[str, str] = {}
        self._tokens = 0
        self._load()

    def __len__(self) -> int:
        return len(self._known)

    def get(self, name: str) -> Completion | None:
        return self._known.get(name)

    def after(self, said: str) -> Completion | None:
        """The newest one whose messages and answer have this digest."""
        return self._known.get(self._by_words.get(said, ""))

    def sampled_as(self, tokens: Sequence[str], logprobs: Sequence[float]) -> Completion | None:
        """The one that these tokens (`token_id:N`) with these log-probs are."""
        return self._known.get(self._by_sampling.get(fingerprint(tokens, logprobs), ""))

    def whole(self, one: Completion) -> Whole:
        chain = [one]
        while chain[-1].parent:
            chain.append(self._known[chain[-1].parent])
        chain.reverse()
        tokens = [token for each in chain for token in (*each.prompt, *each.sampled)]
        text = "".join(each.text for each in chain)
        return Whole(tokens=tokens, start=len(tokens) - len(one.sampled), text=text)

    def add(self, one: Completion) -> None:
        """Written to the file before it is answered."""
        with self._file.open("a", encoding="utf-8") as target:
            target.write(one.model_dump_json() + "\n")
        self._keep(one)
        if self._tokens > MOST_TOKENS:
            self.forget_before(one.version)

    def forget_before(self, updates: int) -> None:
        """Those sampled by weights `KEPT_UPDATES` older than these, and the oldest of too many;
        what another one goes on from stays as long as that."""
        wanted: dict[str, Completion] = {}
        room = MOST_TOKENS * 9 // 10
        for one in reversed(self._known.values()):
            if one.id not in wanted and (updates - one.version > KEPT_UPDATES or room <= 0):
                continue
            while one.id not in wanted:
                wanted[one.id] = one
                room -= len(one.prompt) + len(one.sampled)
                if not one.parent:
                    break
                one = self._known[one.parent]
        if len(wanted) == len(self._known):
            return
        kept = [one for name, one in self._known.items() if name in wanted]
        write_atomically(self._file, "".join(one.model_dump_json() + "\n" for one in kept))
        self._known, self._by_words, self._by_sampling, self._tokens = {}, {}, {}, 0
        for one in kept:
            self._keep(one)

    def _keep(self, one: Completion) -> None:
        self._known[one.id] = one
        self._by_words[one.said] = one.id
        words = [f"token_id:{token}" for token in one.sampled]
        self._by_sampling[fingerprint(words, one.logprobs)] = one.id
        self._tokens += len(one.prompt) + len(one.sampled)

    def _load(self) -> None:
        """The last line may be torn: its completion was never answered."""
        if not self._file.exists():
            return
        raw = self._file.read_bytes()
        whole, _, torn = raw.rpartition(b"\n")
        try:
            for line in whole.split(b"\n") if whole else []:
                self._keep(Completion.model_validate_json(line))
        except ValidationError as error:
            raise StoreError.of(
                "outside.damaged",
                "What was sampled for the script cannot be read.",
                "Remove the file: attempts that are not handed in yet are lost with it.",
                where=str(self._file),
                detail=str(error)[:1000],
            ) from error
        if torn:
            with self._file.open("r+b") as file:
                file.truncate(len(raw) - len(torn))


def digest(before: str, message: str) -> str:
    """Of messages up to and with this one, where `before` is that of those in front of it."""
    return hashlib.blake2b(f"{before}\0{message}".encode(), digest_size=16).hexdigest()


def fingerprint(tokens: Sequence[str], logprobs: Sequence[float]) -> str:
    """Of one sampling: JSON keeps every digit of a log-prob."""
    body = json.dumps([list(tokens), list(logprobs)])
    return hashlib.blake2b(body.encode(), digest_size=16).hexdigest()
