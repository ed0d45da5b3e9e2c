"""What a transcript shows: messages, tool calls, the outcome; and making untrusted text drawable.

Text is never parsed. Control and bidirectional characters are made visible, one for one, so that
token offsets stay true; lines over 2 000 characters are broken before Qt sees them.
"""

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
    """One token: its text, and what is known of it. `None` where it is not."""

    text: str
    advantage: float | None = None
    logprob: float | None = None
    logprob_now: float | None = None
    entropy: float | None = None
    trained: bool = True
    clipped: bool = False
    place: int = 0


@dataclass(frozen=True)
class Message:
    """A turn or a message: role (system user assistant), a heading, facts after it, and its words.

    With `tokens` they are the words, and can be tinted.
    """

    role: str
    text: str = ""
    title: str = ""
    facts: str = ""
    advantage: float | None = None
    tokens: Sequence[Token] = ()


@dataclass(frozen=True)
class ToolCall:
    """A call and its result. State: ok, error, answer."""

    name: str
    arguments: str
    result: str = ""
    state: str = "ok"
    facts: str = ""
    icon: str = "wrench"
    repeats: int = 1
    sources: Sequence[str] = ()
    tokens: Sequence[Token] = ()


@dataclass(frozen=True)
class Note:
    """A line of its own: the shared start, a divergence, a new branch."""

    title: str
    facts: str = ""
    icon: str = "fold-vertical"


@dataclass(frozen=True)
class Outcome:
    """The last row: the sum that makes the reward, in words and as a parts bar."""

    title: str
    facts: str
    parts: Sequence[Part]
    reward: str


Item = Message | ToolCall | Note | Outcome


def plain(text: str) -> str:
    """The text with every control character visible; its length is unchanged."""
    return text.translate(_TABLE)


def break_long_lines(text: str, longest: int = LONGEST_LINE) -> str:
    """Lines over `longest` characters are cut."""
    if len(text) <= longest:
        return text
    out: list[str] = []
    for line in text.split("\n"):
        out += [line[start : start + longest] for start in range(0, len(line), longest)] or [""]
    return "\n".join(out)


def cap_lines(text: str, most: int) -> tuple[str, int]:
    """The first lines, and how many are left out."""
    lines = text.split("\n")
    return ("\n".join(lines[:most]), len(lines) - most) if len(lines) > most else (text, 0)


def shown_part(text: str, lines: int, chars: int) -> tuple[str, int]:
    """The beginning of a text, drawable, and how many lines of it are left out. What is not shown
    is only counted, so that megabytes cost nothing."""
    head, rest = text[:chars], text[chars:]
    words, left_out = cap_lines(break_long_lines(plain(head)), lines)
    if rest:
        left_out += sum(-(-len(line) // LONGEST_LINE) for line in rest.split("\n")) or 1
    return words, left_out


def join_tokens(tokens: Sequence[Token], longest: int = LONGEST_LINE) -> tuple[str, list[int]]:
    """The text of tokens and where each starts; a line that grows too long is broken between
    two.
    """
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
    """The token name behind a token's text, or None. Only trained tokens are tinted."""
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
    side = "neg" if tint == "logprob" else "pos"  # an unlikely token is warm, an open choice cool
    return f"advantage-{side}-{step}" if step else None


def largest_of(items: Sequence[Item], tint: str) -> float:
    """The end of the tint scale: the largest absolute value shown."""
    field = {"advantage": "advantage", "logprob": "logprob", "entropy": "entropy"}.get(tint)
    if field is None:
        return 1.0
    values = (
        abs(value)
        for item in items
        for token in getattr(item, "tokens", ())
        if (value := getattr(token, field)) is not None
    )
    return max(values, default=0.0)
