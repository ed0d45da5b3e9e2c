"""Thinking budget of an answer: when its reasoning is closed, and how sampling goes on behind it.

The answer is sampled as without a budget. When it has that many tokens and its reasoning is still
open, sampling stops, the tokens that close the reasoning are forced, and a second request continues
behind them, with a random stream of its own. An answer that closes its reasoning in time is not
changed: its tokens are the same as without a budget.
"""

from engine.policy.base import SampleRequest
from engine.rollout.gateway.answers import REASONING_MARKS
from engine.rollout.gateway.requests import ChatRequest
from engine.rollout.gateway.structures import structure_of
from engine.rollout.recording import Part
from engine.rollout.rendering.chat import ChatFormat
from engine.rollout.rendering.probes import Findings
from engine.rollout.rendering.syntaxes import END_THINK, THINK
from engine.runtime.seeds import derive


class ThinkingBudget:
    """Count of an answer's tokens against its budget."""

    def __init__(self, tokens: int, findings: Findings, opened: bool) -> None:
        """`tokens`: maximum number of tokens until the reasoning is closed, its opening mark
        included; `opened`: whether the prompt has opened it."""
        self._left = tokens
        self._mark = REASONING_MARKS.get(findings.syntax, (THINK, END_THINK))[0]
        self._begun = ""
        """Beginning of the answer, as long as it may be that of the opening mark."""
        self._undecided = not opened
        self._looked = False
        self.closes = False
        """Whether the reasoning was open at the end of the budget, and is to be closed."""

    def is_spent(self, text: str) -> bool:
        """Count a token, by the text that it completes. True once, at the first token from which on
        the reasoning must not be open: the last of the budget, or of the opening mark if that is
        longer."""
        self._left -= 1
        if self._undecided:
            self._begun = (self._begun + text).lstrip()
            self._undecided = self._mark != self._begun and self._mark.startswith(self._begun)
        if self._looked or self._left > 0 or self._undecided:
            return False
        self._looked = True
        return True


def budget_of(setting: int | None, request: ChatRequest) -> int | None:
    """Thinking budget of a request in tokens: the smaller of the run's and the request's."""
    return min((one for one in (setting, request.thinking_budget) if one is not None), default=None)


def request_behind(
    request: SampleRequest, part: Part, closing: list[int], grammar: str | None
) -> SampleRequest:
    """Request that continues `request` behind the sampled `part` and the forced tokens `closing`,
    within the same limit of tokens. `grammar` is that of the rest."""
    used = [*part.tokens, *closing]
    return request.model_copy(
        update={
            "tokens": [*request.tokens, *used],
            "max_tokens": request.max_tokens - len(used),
            "seed": derive(request.seed, "behind reasoning"),
            "grammar": grammar,
        }
    )


def structure_behind(request: ChatRequest, findings: Findings, chat: ChatFormat) -> str | None:
    """Structural tag of an answer behind its closed reasoning; None if it is free."""
    return structure_of(request, findings, chat.special_tokens, chat.decode(findings.closing))
