"""Items of a transcript: messages, tool calls and outcome; and preparation of untrusted text.

Text is never parsed. Control and bidirectional characters are replaced by visible ones, one for
one, so that token offsets stay valid; lines over 2 000 characters are broken before Qt lays them
out."""

from collections.abc import Sequence
from dataclasses import dataclass

from studio.theme.tokens import advantage_token
from studio.widgets.tables.reward_bar import Part

LONGEST_LINE = 2000
TINTS = ("advantage", "logprob", "entropy", "mask", "none")
_BIDI = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u061c\ufeff")
_TABLE: dict[int, str] = {code: chr(0x2400 + code) for code in range(32) if code not in (9, 10)}
_TABLE |= {9: " ", 127: "\u2421", 0x2028: "\n", 0x2029: "\n"} | {
    ord(mark): "\ufffd" for mark in _BIDI
}


@dataclass(frozen=True, slots=True)
class Token:
    """Token: text and measurements (None: unknown); `logprob_now` is by the current policy."""

    text: str
    advantage: float | None = None
    logprob: float | None = None
    logprob_now: float | None = None
    entropy: float | None = None
    trained: bool = True
    clipped: bool = False
    place: int = 0
    forced: bool = False
    """Whether it was not sampled: it closes the reasoning at the thinking budget."""


@dataclass(frozen=True)
class ImageRef:
    """Image in a text, which has the character IMAGE in its place: number in the trajectory, id."""

    number: int
    id: str


@dataclass(frozen=True)
class Message:
    """Message of a turn: role (system user assistant), heading, facts, text with its images, and
    the reasoning before it, which is folded. `tokens` and `reasoning_tokens`, if given, are these
    texts and can be tinted."""

    role: str
    text: str = ""
    title: str = ""
    facts: str = ""
    advantage: float | None = None
    tokens: Sequence[Token] = ()
    reasoning: str = ""
    reasoning_tokens: Sequence[Token] = ()
    images: Sequence[ImageRef] = ()


@dataclass(frozen=True)
class ToolCall:
    """Tool call and its result with images. State: ok, error, answer."""

    name: str
    arguments: str
    result: str = ""
    state: str = "ok"
    facts: str = ""
    icon: str = "wrench"
    repeats: int = 1
    sources: Sequence[str] = ()
    tokens: Sequence[Token] = ()
    images: Sequence[ImageRef] = ()


@dataclass(frozen=True)
class Note:
    """Line between messages: a shared prefix, a divergence, a new branch or another
    conversation."""

    title: str
    facts: str = ""
    icon: str = "fold-vertical"
    heading: bool = False
    """Whether it begins a section that the outline lists."""


@dataclass(frozen=True)
class Outcome:
    """Last row: the sum of the reward, as text and as a reward bar."""

    title: str
    facts: str
    parts: Sequence[Part]
    reward: str


Item = Message | ToolCall | Note | Outcome


def plain(text: str) -> str:
    """Make every control character visible; the length is unchanged."""
    return text.translate(_TABLE)


def break_long_lines(text: str, longest: int = LONGEST_LINE) -> str:
    """Break lines over `longest` characters."""
    if len(text) <= longest:
        return text
    out: list[str] = []
    for line in text.split("\n"):
        out += [line[start : start + longest] for start in range(0, len(line), longest)] or [""]
    return "\n".join(out)


def cap_lines(text: str, most: int) -> tuple[str, int]:
    """Return the first `most` lines of a text, and the number of lines left out."""
    lines = text.split("\n")
    return ("\n".join(lines[:most]), len(lines) - most) if len(lines) > most else (text, 0)


def shown_part(text: str, lines: int, chars: int) -> tuple[str, int]:
    """Return at most `lines` lines of the first `chars` characters, prepared for drawing, and the
    number of lines left out. The rest is only counted, so that megabytes cost little."""
    head, rest = text[:chars], text[chars:]
    words, left_out = cap_lines(break_long_lines(plain(head)), lines)
    if rest:
        left_out += sum(-(-len(line) // LONGEST_LINE) for line in rest.split("\n")) or 1
    return words, left_out


def join_tokens(tokens: Sequence[Token], longest: int = LONGEST_LINE) -> tuple[str, list[int]]:
    """Return the joined text of tokens, and the offset of each. Lines over `longest` characters are
    broken between two tokens."""
    pieces: list[str] = []
    starts: list[int] = []
    length = line = 0
    for token in tokens:
        words = break_long_lines(plain(token.text), longest)
        if line + len(words) > longest and line:
            pieces.append("\n")
            length, line = length + 1, 0
        starts.append(length)
        pieces.append(words)
        length += len(words)
        cut = words.rfind("\n")
        line = line + len(words) if cut < 0 else len(words) - cut - 1
    return "".join(pieces), starts


def tint_of(token: Token, tint: str, largest: float) -> str | None:
    """Return the background of a trained token (None: none) by `tint`, the quantity shown as colour
    (advantage, logprob, entropy, mask); `largest` is its value at full colour."""
    if tint == "none" or not token.trained:
        return None
    if tint == "mask":
        return "advantage-pos-2"
    if tint == "advantage":
        return None if token.advantage is None else advantage_token(token.advantage, largest)
    value = token.logprob if tint == "logprob" else token.entropy
    if value is None:
        return None
    share = min(1.0, abs(value) / (largest or 1.0))
    step = min(3, int(share * 4))
    return f"unlikely-{step}" if step else None


def largest_of(items: Sequence[Item], tint: str) -> float:
    """Return the largest absolute value of a quantity (`tint`) over all tokens, which has full
    colour; 1 for a tint without values (mask, none)."""
    field = {"advantage": "advantage", "logprob": "logprob", "entropy": "entropy"}.get(tint)
    if field is None:
        return 1.0
    values = (
        abs(value)
        for item in items
        for name in ("tokens", "reasoning_tokens")
        for token in getattr(item, name, ())
        if (value := getattr(token, field)) is not None
    )
    return max(values, default=0.0)
