"""Filter expressions of trajectories: grammar, parser and syntax tree. Pure.

    reward < 0.2 and turns > 3 and tool:search and text:"refund"

Grammar (`and` may be left out between two conditions):

    filter     = or
    or         = and { "or" and }
    and        = not { ["and"] not }
    not        = "not" not | "(" or ")" | condition
    condition  = NUMBER operator figure   operator: <  <=  >  >=  =  !=
               | NAME ":" value           value: a word, or text in double quotes
               | words                    searched in the whole trajectory

`NUMBERS` and `NAMES` list the fields; `part.NAME` and `metric.NAME` are numbers too, the name in
double quotes where it has spaces. Keywords are written in any case. Words without a field must all
occur, the last one as the beginning of a word; a value in double quotes is searched as a phrase, a
value without as the beginning of a word.

A figure that a trajectory lacks (the reward of an unscored one, a part that was not given) makes a
comparison unknown, as NULL does in SQL: unknown is not a match, and neither is its negation.
`not reward < 0.2` therefore leaves out unscored trajectories; `is:unscored` finds them.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from engine.protocol.problems import Refused

NUMBERS: dict[str, str] = {
    "reward": "total reward",
    "advantage": "advantage within the group",
    "step": "step that trained on the trajectory",
    "group": "number of the group in the step, from 1",
    "turns": "model calls",
    "tokens": "sampled tokens",
    "duration": "seconds from start to end",
    "latency": "mean seconds per model call",
    "tool_calls": "tool calls",
    "tool_errors": "tool calls whose result looks like an error",
    "cost": "US dollars paid to a provider",
}
"""Fields that are compared with a figure, with their meaning."""

FAMILIES: dict[str, str] = {"part": "a reward part", "metric": "a metric of the agent"}
"""Prefixes of fields with names of their own, as in `part.NAME`."""

NAMES: dict[str, str] = {
    "text": "text anywhere in the trajectory",
    "prompt": "text of system and user messages",
    "answer": "text written by the model",
    "call": "arguments and results of tool calls",
    "tool": "name of a tool that was called",
    "scenario": "id of the scenario, or part of its title",
    "label": "kind of a label: best, veto, gold …",
    "model": "model compared in an evaluation",
    "split": "train or validation",
    "is": "state of the trajectory",
}
"""Fields that are followed by a colon and a value, with their meaning."""

TEXTS = ("text", "prompt", "answer", "call")
STATES: dict[str, str] = {
    "unscored": "has no valid reward",
    "scored": "has a reward",
    "waiting": "waits for the judge",
    "truncated": "cut at a token limit",
    "marked": "its text addresses the judge",
    "labelled": "has a label",
    "signal": "rewards differ within its group",
}
"""Values of `is:`, with their meaning."""
SPLITS = ("train", "validation")
OPERATORS = ("<", "<=", ">", ">=", "=", "!=")
MOST_CHARS = 2000
MOST_CONDITIONS = 60
DEEPEST = 40
"""Largest depth of parentheses and `not`."""


@dataclass(frozen=True)
class Comparison:
    """Comparison of a number with a figure. `name` is that of a part or metric, else empty."""

    field: str
    operator: str
    figure: float
    name: str = ""


@dataclass(frozen=True)
class Match:
    """Condition on a field of `NAMES` that is not a text search."""

    field: str
    value: str


@dataclass(frozen=True)
class TextSearch:
    """Search for words that all occur, the last one as the beginning of a word; or, if `phrase`,
    exactly these words in this order. `field`: one of `TEXTS`."""

    field: str
    words: str
    phrase: bool = False


@dataclass(frozen=True)
class Not:
    condition: "Node"


@dataclass(frozen=True)
class And:
    conditions: "tuple[Node, ...]"


@dataclass(frozen=True)
class Or:
    conditions: "tuple[Node, ...]"


Node = Comparison | Match | TextSearch | Not | And | Or


@dataclass(frozen=True)
class Token:
    """Piece of an expression: `word`, `quoted`, `operator`, `(` or `)`."""

    kind: str
    text: str
    start: int
    end: int


_TOKEN = re.compile(
    r"""\s*(?:(?P<quoted>"(?:[^"\\]|\\.)*")|(?P<operator><=|>=|!=|==|[<>=])
    |(?P<bracket>[()])|(?P<word>(?:[^\s()"<>=!]|!(?!=))+))""",
    re.VERBOSE | re.DOTALL,
)
_NAMED = re.compile(r"([A-Za-z_][\w.]*):(.*)", re.DOTALL)
_KEYWORDS = ("and", "or", "not")


def parse_filter(text: str) -> Node | None:
    """Parse a filter expression; None if it is empty. Raises Refused with a sentence that names the
    position of the mistake."""
    if len(text) > MOST_CHARS:
        raise _problem(f"The filter has more than {MOST_CHARS} characters.")
    tokens = list(tokens_of(text))
    return _Parser(tokens, len(text)).parse() if tokens else None


def tokens_of(text: str) -> Iterator[Token]:
    """Split a filter expression into tokens. Raises Refused for a quote that is not closed or an
    unknown operator."""
    text, place = text.replace("“", '"').replace("”", '"'), 0
    while text[place:].strip():
        found = _TOKEN.match(text, place)
        if found is None:
            at = place + len(text[place:]) - len(text[place:].lstrip())
            if text[at] == '"':
                raise _problem("The quotation mark is not closed", at)
            raise _problem(f"`{text[at]}` is not an operator", at, "Write `!=` for “not equal”.")
        kind = str(found.lastgroup)
        word = found.group(kind)
        yield Token(word if kind == "bracket" else kind, word, found.start(kind), found.end())
        place = found.end()


def searches(node: Node | None) -> list[TextSearch]:
    """Return the text searches in a parsed filter whose words can occur in a match: all but negated
    ones. Empty for None."""
    if isinstance(node, TextSearch):
        return [node]
    if isinstance(node, And | Or):
        return [one for part in node.conditions for one in searches(part)]
    return []


class _Parser:
    def __init__(self, tokens: list[Token], end: int) -> None:
        self._tokens, self._end = tokens, end
        self._place = self._conditions = self._depth = 0

    def parse(self) -> Node:
        node = self._or()
        if (extra := self._next) is not None:
            raise _problem("The closing parenthesis has no opening one", extra.start)
        return node

    @property
    def _next(self) -> Token | None:
        return self._tokens[self._place] if self._place < len(self._tokens) else None

    def _keyword(self, *words: str) -> bool:
        token = self._next
        return token is not None and token.kind == "word" and token.text.lower() in words

    def _take(self) -> Token:
        token = self._tokens[self._place]
        self._place += 1
        return token

    def _or(self) -> Node:
        parts = [self._and()]
        while self._keyword("or"):
            self._take()
            parts.append(self._and())
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _and(self) -> Node:
        parts = [self._not()]
        while (token := self._next) is not None and token.kind != ")" and not self._keyword("or"):
            if self._keyword("and"):
                self._take()
            parts.append(self._not())
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _not(self) -> Node:
        token = self._next
        if token is None or token.kind == ")" or self._keyword("and", "or"):
            raise self._missing()
        if not self._keyword("not") and token.kind != "(":
            return self._condition()
        self._depth += 1
        if self._depth > DEEPEST:
            raise _problem("The filter is nested too deeply", token.start)
        self._take()
        if token.kind == "(":
            node = self._or()
            if self._next is None:
                raise _problem("The parenthesis is not closed", token.start)
            self._take()
        else:
            node = Not(self._not())
        self._depth -= 1
        return node

    def _missing(self) -> Refused:
        if self._place == 0:
            return _problem("A condition is missing", 0)
        before = self._tokens[self._place - 1]
        return _problem(f"After `{before.text}`, a condition is missing", before.end)

    def _condition(self) -> Node:
        self._conditions += 1
        if self._conditions > MOST_CONDITIONS:
            raise _problem(f"The filter has more than {MOST_CONDITIONS} conditions.")
        token = self._take()
        if token.kind == "operator":
            raise _problem(f"Before `{token.text}`, a field is missing", token.start)
        if token.kind == "quoted":
            return _text("text", token, token.start)
        following = self._next
        if token.text.lower() in ("part.", "metric.") and self._touches(token, "quoted"):
            return self._comparison(token, token.text + unquoted(self._take().text))
        if following is not None and following.kind == "operator":
            return self._comparison(token, token.text)
        if named := _NAMED.fullmatch(token.text):
            return self._named(token, named.group(1), named.group(2))
        return self._words(token)

    def _touches(self, token: Token, kind: str) -> bool:
        following = self._next
        return following is not None and following.kind == kind and following.start == token.end

    def _comparison(self, token: Token, field: str) -> Node:
        family, _, name = field.partition(".")
        family = family.lower()
        if not (name and family in FAMILIES):
            family, name = field.lower(), ""
        if family in NAMES:
            raise _problem(f"`{family}` takes a colon, as in `{family}:value`", token.start)
        if family not in NUMBERS and not name:
            raise _unknown(field, token.start)
        if self._next is None or self._next.kind != "operator":
            raise _problem(f"After `{field}`, a comparison is missing", token.end)
        operator = self._take()
        value = self._next
        if value is None or value.kind != "word" or self._keyword(*_KEYWORDS):
            raise _problem(f"After `{operator.text}`, a number is missing", operator.end)
        self._take()
        try:
            figure = float(value.text)
        except ValueError:
            figure = math.nan
        if not math.isfinite(figure) or "_" in value.text:
            raise _problem(f"`{shortened(value.text)}` is not a number", value.start)
        return Comparison(family, operator.text.replace("==", "="), figure, name)

    def _named(self, token: Token, field: str, value: str) -> Node:
        known = field.lower()
        if known in NUMBERS or known.partition(".")[0] in FAMILIES:
            raise _problem(f"`{field}` takes a comparison, as in `{field} > 3`", token.start)
        if known not in NAMES:
            raise _unknown(field, token.start)
        quoted = not value and self._touches(token, "quoted")
        if quoted:
            token = self._take()
            value = unquoted(token.text)
        if not value:
            raise _problem(f"After `{field}:`, a value is missing", token.end)
        if known in TEXTS:
            return _text(known, token, token.start, None if quoted else value)
        for wanted, values in (("is", tuple(STATES)), ("split", SPLITS)):
            if known == wanted:
                value = value.lower()
                if value not in values:
                    raise _problem(
                        f"`{known}:{shortened(value)}` is unknown",
                        token.start,
                        f"Write one of {', '.join(values)}.",
                    )
        return Match(known, value)

    def _words(self, token: Token) -> Node:
        """Collect neighbouring words without a field into one search."""
        words = [token.text]
        while (following := self._next) is not None and following.kind == "word":
            place = self._place + 1
            operator = place < len(self._tokens) and self._tokens[place].kind == "operator"
            field = following.text.lower() in ("part.", "metric.")
            if self._keyword(*_KEYWORDS) or operator or field or _NAMED.fullmatch(following.text):
                break
            words.append(self._take().text)
        return _checked(TextSearch("text", " ".join(words)), token.start)


def _text(field: str, token: Token, start: int, value: str | None = None) -> Node:
    words = unquoted(token.text) if value is None else value
    return _checked(TextSearch(field, words, phrase=value is None), start)


def _checked(search: TextSearch, start: int) -> TextSearch:
    if not re.search(r"[^\W_]", search.words):
        message = f"`{shortened(search.words)}` has no letter or digit to search for"
        raise _problem(message, start)
    return search


def unquoted(text: str) -> str:
    """Remove the double quotes around a value, and the backslashes that escape characters in it."""
    return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL)


def quoted(value: str) -> str:
    """Write a value as it appears in a filter expression: in double quotes unless it is a plain
    word."""
    if re.fullmatch(r"[\w./@+-]+", value):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def is_error_result(result: str) -> bool:
    """Return whether a tool result looks like an error by its first characters; the filter
    `tool_errors` counts these."""
    start = result[:200].lstrip()[:40].lower()
    return start.startswith(("error", '{"error', "traceback", "exception"))


def shortened(text: str) -> str:
    """Shorten a value to at most 40 characters for a message."""
    return text if len(text) <= 40 else f"{text[:39]}…"


def _unknown(field: str, start: int) -> Refused:
    fields = [*NUMBERS, *NAMES, *(f"{family}.NAME" for family in FAMILIES)]
    close = get_close_matches(field.lower(), fields, 3, 0.6)
    shown = [f"`{one}`" for one in close or fields]
    hint = f"Did you mean {' or '.join(shown)}?" if close else f"Fields: {', '.join(shown)}."
    if not close:
        hint += " Put text to search for in double quotes."
    return _problem(f"`{shortened(field)}` is not a field", start, hint)


def _problem(message: str, start: int | None = None, hint: str = "") -> Refused:
    place = "" if start is None else f" (character {start + 1})."
    return Refused.of("filter.invalid", message + place, hint)
