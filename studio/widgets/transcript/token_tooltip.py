"""Tooltip of a token: position, advantage, both log-probabilities, entropy."""

from studio.text import formatting
from studio.widgets.text.phrase import Span
from studio.widgets.text.tooltip import TipText
from studio.widgets.transcript.items import Token, plain


def token_tip(token: Token) -> TipText:
    """Return the tooltip of a token; unknown measurements are omitted."""
    words = plain(token.text).replace("\n", "\u21b5").strip() or "space"
    lines: list[list[Span]] = []
    if token.forced:
        lines.append([Span("Closed by the thinking budget; not trained")])
    elif not token.trained:
        lines.append([Span("not trained")])
    if token.advantage is not None:
        tone = "accent" if token.advantage > 0 else "bad" if token.advantage < 0 else "text"
        lines.append([Span("advantage "), Span(formatting.signed(token.advantage), tone, 600)])
    if token.logprob is not None:
        line = [
            Span("log-prob "),
            Span(formatting.number(token.logprob), "text", 600),
            Span(" at sampling"),
        ]
        if token.logprob_now is not None:
            line += [
                Span(", "),
                Span(formatting.number(token.logprob_now), "text", 600),
                Span(" now"),
            ]
        lines.append(line)
    if token.entropy is not None:
        lines.append([Span("entropy "), Span(formatting.number(token.entropy), "text", 600)])
    if token.clipped:
        lines.append([Span("clipped", "warn")])
    return TipText(
        words[:40], f"token {formatting.count(token.place)}" if token.place else "", lines
    )
