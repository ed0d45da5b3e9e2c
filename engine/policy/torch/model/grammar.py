"""Grammars that constrain sampling, by xgrammar (2411.15100): compilation, matching and masks.

A grammar is the JSON of a structural tag; a `Matcher` follows one completion through it. A mask
has W = ceil(V / 32) words of 32 bits, V being the vocabulary of the model's head: bit v % 32 of
word v // 32 is set if token v is allowed. Sampler and trainer apply the same masks, before the
softmax. xgrammar is imported with the first grammar.
"""

import json
import re
import threading
import time
from concurrent.futures import Future
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from engine.policy.base import MOST_GRAMMAR_CHARS
from engine.protocol.problems import PolicyError, in_one_line

COMPILE_S = 30.0
"""Timeout of a compilation in seconds. It ends the request: a running compilation has no end but
its own."""
COMPILERS = 2
"""Maximum number of concurrent compilations, each on one core."""
CACHE_BYTES = 256 * 2**20
"""Maximum size of the compiled grammars that are kept, in bytes."""
MATCH_S, MATCH_TOKEN_S = 1.0, 0.02
"""Limit of the CPU time of matching one completion, in seconds: a constant and a part per token.
With a vocabulary of 150 000, usual grammars take 20 to 200 microseconds per token, and a hundred
optional fields or `[a-z ]{1,500}` 3 to 7 milliseconds; the time of ambiguous ones such as
`((a|a)*)*` grows with every token."""
WORD = 32
SOURCE = re.compile(r"\[\d\d:\d\d:\d\d\] \S+:\d+: |Check failed: \(.*?\) is \w+: ")
"""Places in xgrammar's source, in its messages."""
HINT = "Correct or simplify the JSON schema, pattern or grammar of the request."


class Matcher:
    """State of one completion in its grammar."""

    def __init__(self, matcher: Any, words: int) -> None:
        self._matcher, self._words = matcher, words
        self._spent_s, self._tokens = 0.0, 0

    @property
    def finished(self) -> bool:
        """Whether an end token has been accepted; `mask` must not be called then."""
        return bool(self._matcher.is_terminated())

    def mask(self) -> Tensor:
        """Mask [W] of the next token. Raises PolicyError if no token is allowed, or if matching has
        exceeded its CPU time."""
        mask_1W = torch.empty((1, self._words), dtype=torch.int32)
        self.fill(mask_1W)
        if not mask_1W.any():
            raise PolicyError.of(
                "grammar.no_token",
                f"The output grammar allows no token after {self._tokens} tokens.",
                HINT,
            )
        if self._spent_s > MATCH_S + MATCH_TOKEN_S * self._tokens:
            raise PolicyError.of(
                "grammar.too_slow",
                f"Matching the output grammar took {self._spent_s:.1f} s for {self._tokens} "
                "tokens: the grammar is too ambiguous.",
                "Avoid repetitions inside repetitions.",
            )
        return mask_1W[0]

    def fill(self, mask_1W: Tensor) -> None:
        """Write the mask of the next token. Raises PolicyError if xgrammar fails."""
        start_s = time.thread_time()
        try:
            self._matcher.fill_next_token_bitmask(mask_1W)
        except RuntimeError as error:
            raise _invalid(error) from error
        self._spend(start_s)

    def accept(self, token: int) -> bool:
        """Advance by a token; returns False, in the same state, if the grammar forbids it."""
        start_s = time.thread_time()
        accepted = not self.finished and bool(self._matcher.accept_token(token))
        self._spend(start_s)
        self._tokens += accepted
        return accepted

    def _spend(self, start_s: float) -> None:
        self._spent_s += time.thread_time() - start_s


class Grammars:
    """Compiled grammars of one model, made in threads and cached."""

    def __init__(self, folder: Path, vocabulary: int, eos_tokens: list[int]) -> None:
        """`folder` has the model's tokenizer, `vocabulary` is the number of tokens of its head."""
        self._folder, self._vocabulary = folder, vocabulary
        self._words = -(-vocabulary // WORD)
        self._eos = eos_tokens
        self._running: dict[str, Future[Any]] = {}
        self._loading, self._free = threading.Lock(), threading.Semaphore(COMPILERS)

    def start(self, grammar: str) -> "Future[Any]":
        """Start to compile a grammar, unless it is being compiled; the result is for `matcher`, an
        exception is a PolicyError. Raises PolicyError if the grammar is too long."""
        if len(grammar) > MOST_GRAMMAR_CHARS:
            raise PolicyError.of(
                "grammar.too_long",
                f"The output grammar has {len(grammar):,} characters, more than the limit of "
                f"{MOST_GRAMMAR_CHARS:,}.",
                "Shorten the JSON schema, the grammar or the list of tools of the request.",
            )
        if running := self._running.get(grammar):
            return running
        future = self._running[grammar] = Future[Any]()
        future.add_done_callback(lambda _: self._running.pop(grammar, None))
        threading.Thread(target=self._compile, args=(grammar, future), daemon=True).start()
        return future

    def compile(self, grammar: str) -> Any:
        """Compile a grammar and return the result for `matcher`. Raises PolicyError, after
        `COMPILE_S` seconds too."""
        try:
            return self.start(grammar).result(COMPILE_S)
        except TimeoutError as error:
            raise too_slow() from error

    def matcher(self, compiled: Any) -> Matcher:
        """Matcher at the beginning of a compiled grammar."""
        import xgrammar

        own = xgrammar.GrammarMatcher(compiled, override_stop_tokens=self.ends)
        return Matcher(own, self._words)

    def masks(self, grammar: str, tokens: list[int]) -> Tensor:
        """Masks [T, W] under which T sampled tokens were drawn. A token that the grammar does not
        allow, and those after it, get a mask that allows every token. Raises PolicyError if the
        grammar cannot be compiled."""
        matcher = self.matcher(self.compile(grammar))
        masks_TW = torch.full((len(tokens), self._words), -1, dtype=torch.int32)
        for place, token in enumerate(tokens):
            if matcher.finished:
                break
            matcher.fill(masks_TW[place : place + 1])
            if not matcher.accept(token):
                masks_TW[place] = -1
                break
        return masks_TW

    @property
    def ends(self) -> list[int]:
        """Token ids that end a completion under a grammar, known once one has been compiled: the
        model's end tokens and that of its tokenizer, as in vLLM."""
        return self._tools[1]

    @cached_property
    def _tools(self) -> tuple[Any, list[int]]:
        """Compiler of the model's tokenizer, and `ends`. Raises PolicyError."""
        file = self._folder / "tokenizer.json"
        try:
            import xgrammar

            tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(file))
            ends = sorted({*self._eos, *_end_of_tokenizer(self._folder, tokenizer)})
            if not ends:
                raise _no_end_token(self._folder)
            info = xgrammar.TokenizerInfo.from_huggingface(
                tokenizer, vocab_size=self._vocabulary, stop_token_ids=ends
            )
            compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_limit_bytes=CACHE_BYTES)
        except PolicyError:
            raise
        except ImportError as error:
            raise PolicyError.of(
                "grammar.not_installed",
                "The policy's environment lacks the library xgrammar, which structured output "
                "needs.",
                "Install the engine's environment again.",
                detail=str(error),
            ) from error
        except Exception as error:  # tokenizers raises Exception itself
            raise PolicyError.of(
                "grammar.no_tokenizer",
                f"Structured output needs the model's tokenizer: {in_one_line(error)}.",
                "Download the model again.",
                where=str(file),
            ) from error
        return compiler, ends

    def _compile(self, grammar: str, future: "Future[Any]") -> None:
        try:
            with self._loading:
                compiler, _ = self._tools
            with self._free:
                future.set_result(compiler.compile_structural_tag(grammar))
        except PolicyError as error:
            future.set_exception(error)
        except (RuntimeError, ValueError, TypeError) as error:
            future.set_exception(_invalid(error))


def too_slow() -> PolicyError:
    """Error for a grammar whose compilation has taken `COMPILE_S` seconds."""
    return PolicyError.of(
        "grammar.too_slow",
        f"The output grammar was not compiled within {COMPILE_S:.0f} s.",
        "Use fewer large repetitions and character classes.",
    )


def unpack(masks_MW: Tensor, width: int) -> Tensor:
    """Convert the words of masks [M, W] to booleans [M, width]: whether each of the first `width`
    tokens is allowed. `width` is at most 32 · W."""
    if masks_MW.device.type == "cpu":  # the same takes 20 times longer in torch there
        bytes_MB = masks_MW.contiguous().numpy().view(np.uint8)
        bits_MV = np.unpackbits(bytes_MB, axis=-1, count=width, bitorder="little")
        return torch.from_numpy(bits_MV).view(torch.bool)
    shifts = torch.arange(WORD, dtype=torch.int32, device=masks_MW.device)
    return (masks_MW[:, :, None] >> shifts & 1).view(len(masks_MW), -1)[:, :width].bool()


def _end_of_tokenizer(folder: Path, tokenizer: PreTrainedTokenizerFast) -> list[int]:
    """Token id of the `eos_token` in a model's tokenizer_config.json; empty if it has none."""
    about = folder / "tokenizer_config.json"
    if not about.is_file():
        return []
    token = json.loads(about.read_text(encoding="utf-8")).get("eos_token")
    text = token["content"] if isinstance(token, dict) else token
    found = None if text is None else tokenizer.get_vocab().get(text)
    return [] if found is None else [found]


def _no_end_token(folder: Path) -> PolicyError:
    return PolicyError.of(
        "grammar.no_end_token",
        "The model has no end-of-sequence token, which structured output needs.",
        "Add eos_token_id to the model's generation_config.json.",
        where=str(folder),
    )


def _invalid(error: Exception) -> PolicyError:
    reason = SOURCE.sub("", in_one_line(error)).strip() or type(error).__name__
    return PolicyError.of(
        "grammar.invalid",
        f"The output grammar cannot be compiled: {reason.rstrip('.')}.",
        HINT,
        detail=str(error)[:2000],
    )
