"""Trajectories with a second conversation: a side call that writes a title."""

from engine.protocol.records.conversations import AgentConversation, Branch, Message
from engine.protocol.records.runs import Trajectory

TITLE = ["Cove", " meeting", " in", " April"]


def with_side_call(record: Trajectory) -> Trajectory:
    """Return a simulated trajectory with a title of four tokens that is not trained."""
    prompt = ["<|im_start|>system\n", "Write a short title.", "<|im_end|>\n"]
    side = Branch(
        tokens=list(range(len(prompt) + len(TITLE))),
        spans=[(len(prompt), len(prompt) + len(TITLE))],
        logprobs=[-0.2] * len(TITLE),
        pieces=[*prompt, *TITLE],
        conversation=1,
        times=[(0.4, 0.9)],
    )
    question = next(one for one in record.messages if one.role == "user")
    messages = [
        Message(role="system", content="Write a short title."),
        question,
        Message(role="assistant", content="".join(TITLE)),
    ]
    main = sum(one.role == "assistant" for one in record.messages)
    return record.model_copy(
        update={
            "branches": [*record.branches, side],
            "conversations": [
                AgentConversation(name="main", answers=main),
                AgentConversation(name="title", trained=False, answers=1, messages=messages),
            ],
        }
    )
