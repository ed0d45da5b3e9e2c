"""Rubrics with front matter: criteria, or a rejection."""

from engine.judge.prompting.rubric import parse_rubric
from engine.protocol.problems import ConfigError

REFUSALS = (ConfigError,)
BOMB = "\n".join(
    ["a: &a [x, x, x, x, x, x, x, x]"]
    + [
        f"{b}: &{b} [{', '.join([f'*{a}'] * 8)}]"
        for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    ]
)


def seeds() -> list[bytes]:
    return [
        b"---\ncriteria:\n  - {name: short, weight: 2, words: Shorter.}\n---\nBe short.\n",
        b"---\ncriteria:\n- name: a\n  weight: 0.5\n  words: |\n    Two\n    lines\n---\nText\n",
        f"---\n{BOMB}\ncriteria: [*i]\n---\n".encode(),
        b"---\ncriteria: [{name: !!int '', weight: !!float x, words: !!bool z}]\n---\n",
        b"\xef\xbb\xbf---\r\ncriteria: []\r\n---\r\n",
    ]


def execute(data: bytes) -> None:
    rubric = parse_rubric(data.decode(errors="replace"))
    assert len(rubric.model_dump_json()) < 20 * len(data) + 1000
