"""An example → token sequences with trained spans, by the model's own template and tokenizer.

Each learned answer, with its end token, is a trained span. A conversation is one sequence as long
as the template only adds to it; where it rewrites earlier turns (thoughts that are left out of the
past), the next answer begins a sequence of its own, as in a rollout.
"""

from engine.policy.base import TrainItem
from engine.protocol.problems import AtelierError
from engine.rollout.rendering.chat import ChatFormat
from engine.training.sft.formats import Example


def render(example: Example, chat: ChatFormat, max_context: int) -> list[TrainItem]:
    """At least one sequence. Raises ValueError with the reason why there is none."""
    try:
        items = _conversation(example, chat) if example.messages else [_plain(example, chat)]
    except AtelierError as error:
        raise ValueError(error.problem.message) from error
    longest = max(len(item.tokens) for item in items)
    if longest > max_context:
        raise ValueError(f"It has {longest} tokens; model.max_context is {max_context}.")
    return items


def _plain(example: Example, chat: ChatFormat) -> TrainItem:
    """No template; the end token is added, as TRL adds it. Without a prompt every token is learned
    but the first, which nothing comes before."""
    answer = example.answer
    answer += "" if answer.endswith(chat.end) else chat.end
    if example.form == "text":
        tokens = chat.encode(answer, special=True)
        start = 1
    else:
        prompt = chat.encode(example.prompt, special=True)
        tokens = prompt + chat.encode(answer)
        start = max(1, len(prompt))
    if start >= len(tokens):
        raise ValueError("It is a single token, and nothing comes before it.")
    return TrainItem(tokens=tokens, spans=[(start, len(tokens))])


def _conversation(example: Example, chat: ChatFormat) -> list[TrainItem]:
    found: list[TrainItem] = []
    tokens: list[int] = []
    spans: list[tuple[int, int]] = []
    text = ""
    for place in sorted(example.learned):
        before, answer = _answer(example, chat, place)
        if not before.startswith(text):
            found.append(TrainItem(tokens=tokens, spans=spans))
            tokens, spans, text = [], [], ""
        tokens = tokens + chat.encode(before[len(text) :])
        ended = [*tokens, *chat.encode(answer)]
        spans = [*spans, (len(tokens), len(ended))]
        tokens, text = ended, before + answer
    return [*found, TrainItem(tokens=tokens, spans=spans)]


def _answer(example: Example, chat: ChatFormat, place: int) -> tuple[str, str]:
    """The prompt of a message, and what the model has to say there."""
    messages, tools = example.messages, example.tools
    before = chat.render(messages[:place], tools, answer=True)
    after, end = chat.render_answered(messages[: place + 1], tools)
    if not after.startswith(before):
        raise ValueError(
            f"The chat template writes message {place + 1} otherwise than it begins an answer."
        )
    answer = after[len(before) : end]
    for call in messages[place].get("tool_calls") or []:
        if call["function"]["name"] not in answer:
            raise ValueError(
                f"The model's chat template leaves out the tool calls of message {place + 1}."
            )
    if not answer:
        raise ValueError(f"The chat template leaves out message {place + 1}.")
    return before, answer
