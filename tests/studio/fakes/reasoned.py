"""Trajectories with reasoning before each answer, whose last turn starts a new branch."""

from engine.protocol.records.conversations import Branch
from engine.protocol.records.runs import Trajectory

REASONING = (
    "The question has three parts: when Dana lands, who changed the booking, and in which message "
    "it is written. The itinerary of March may be out of date, because this airline moves its "
    "flights often.\n\nFirst search for the flight number, then open the newest message that "
    "mentions a change. If both times differ, the later message counts."
)
REASON = "the chat template leaves out the reasoning of earlier answers"


def with_reasoning(record: Trajectory) -> Trajectory:
    """Return a simulated trajectory of one branch with reasoning in all turns."""
    (branch,) = record.branches
    messages = [
        message.model_copy(update={"reasoning": REASONING if message.role == "assistant" else ""})
        for message in record.messages
    ]
    (start, _) = branch.spans[-1]
    first = _reasoned(_part(branch, 0, start))
    last = _reasoned(_part(branch, start, len(branch.tokens))).model_copy(update={"reason": REASON})
    counts = {"reasoning_tokens": float(len(branch.spans) * len(REASONING.split()))}
    return record.model_copy(
        update={"messages": messages, "branches": [first, last], "metrics": record.metrics | counts}
    )


def with_closed_reasoning(record: Trajectory) -> Trajectory:
    """Return a simulated trajectory with reasoning that a thinking budget closed in all turns."""
    record = with_reasoning(record)
    branches = [_closed(branch) for branch in record.branches]
    return record.model_copy(update={"branches": branches})


def _closed(branch: Branch) -> Branch:
    """Take the closing mark of each answer out of its span."""
    spans: list[tuple[int, int]] = []
    forced: list[tuple[int, int]] = []
    logprobs: list[float] = []
    values = iter(branch.logprobs)
    for start, end in branch.spans:
        mark = next(n for n in range(start, end) if branch.pieces[n] == "\n</think>\n\n")
        spans += [(start, mark), (mark + 1, end)]
        forced.append((mark, mark + 1))
        known = [next(values) for _ in range(start, end)]
        logprobs += known[: mark - start] + known[mark + 1 - start :]
    return branch.model_copy(update={"spans": spans, "forced": forced, "logprobs": logprobs})


def _part(branch: Branch, start: int, end: int) -> Branch:
    spans = [(a, b) for a, b in branch.spans if start <= a < end]
    skipped = sum(b - a for a, b in branch.spans if a < start)
    count = sum(b - a for a, b in spans)
    return Branch(
        tokens=branch.tokens[start:end],
        pieces=branch.pieces[start:end],
        spans=[(a - start, b - start) for a, b in spans],
        logprobs=branch.logprobs[skipped : skipped + count],
    )


def _reasoned(branch: Branch) -> Branch:
    """Put reasoning in front of every sampled span."""
    words = REASONING.replace("\n\n", " \n\n").split(" ")
    thought = ["<think>\n", *(f"{w}" if w[0] == "\n" else f" {w}" for w in words), "\n</think>\n\n"]
    thought[1] = thought[1].strip()
    tokens: list[int] = []
    pieces: list[str] = []
    spans: list[tuple[int, int]] = []
    logprobs: list[float] = []
    done = used = 0
    for start, end in branch.spans:
        tokens += branch.tokens[done:start]
        pieces += branch.pieces[done:start]
        begin = len(tokens)
        tokens += [*range(len(thought)), *branch.tokens[start:end]]
        answer = branch.pieces[start:end]
        pieces += [*thought, *answer]
        spans.append((begin, len(tokens)))
        logprobs += [-0.2 - n % 7 / 5 for n in range(len(thought))]
        logprobs += branch.logprobs[used : used + end - start]
        used, done = used + end - start, end
    tokens += branch.tokens[done:]
    pieces += branch.pieces[done:]
    return Branch(tokens=tokens, spans=spans, logprobs=logprobs, pieces=pieces)
