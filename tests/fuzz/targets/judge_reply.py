"""Replies of a judge (`judge.reply`): scores are numbers from 0 to 1, for requested ids."""

import json

from engine.judge.prompting.reply import read_art_reply, read_reply
from engine.protocol.records.judging import Criterion, Rubric

REFUSALS = ()
IDS = ["BC", "DF", "GH"]
PLAIN = Rubric(source="s", text="s")
WEIGHTED = Rubric(source="s", text="s", criteria=(Criterion(name="right"), Criterion(name="kind")))


def seeds() -> list[bytes]:
    entries = [
        {"id": name, "score": 0.5, "reason": "so", "quotes": ["a"], "criteria": dict.fromkeys(
            ("right", "kind"), 0.25)}
        for name in IDS
    ]  # fmt: skip
    text = json.dumps({"attempts": entries})
    art = json.dumps({"scores": [{"trajectory_id": "1", "explanation": "e", "score": 1.0}]})
    return [
        one.encode()
        for one in (
            text, art, f"<think>maybe {text}</think>\n{text}", f"Sure:\n```json\n{text}\n```",
            f"<think>{text}", f"{text}\n{art}", "{" * 50 + text + "}" * 50,
        )
    ]  # fmt: skip


def execute(data: bytes) -> None:
    text = data.decode(errors="replace")
    for finish in ("", "length"):
        for reply in (
            read_reply(text, IDS, PLAIN, finish),
            read_reply(text, IDS, WEIGHTED, finish),
            read_art_reply(text, 3, finish),
        ):
            assert set(reply.opinions) <= {*IDS, "1", "2", "3"}
            assert all(0 <= opinion.score <= 1 for opinion in reply.opinions.values())
            assert not (finish and reply.opinions)
            assert bool(reply.complaint) == bool(reply.fault)
