"""Colour tokens: reads resources/theme/*.toml and computes with their colours. Free of Qt. A token
is a name ("accent-soft") of an opaque colour; both themes define the same names."""

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from studio.runtime.paths import resource

THEMES = ("dark", "light")
REWARD_STEPS = 7
ADVANTAGE_STEPS = 3
_HEX = re.compile(r"#[0-9A-Fa-f]{6}")


@dataclass(frozen=True)
class Tokens:
    """Theme colours: its scheme and the opaque colour (#rrggbb) of every token."""

    scheme: str
    colors: Mapping[str, str]

    def __getitem__(self, token: str) -> str:
        try:
            return self.colors[token]
        except KeyError:
            raise KeyError(f"no colour token named {token!r} in the {self.scheme} theme") from None


def load_tokens(name: str) -> Tokens:
    """Load a theme (light or dark). Raises ValueError for a colour that is not #rrggbb."""
    return parse_tokens(resource("theme", f"{name}.toml"))


def parse_tokens(path: Path) -> Tokens:
    """Parse a theme file: every key of every table is a token."""
    raw = tomllib.loads(path.read_text(encoding="utf-8"))
    colors: dict[str, str] = {}
    for table in (value for value in raw.values() if isinstance(value, dict)):
        for token, value in table.items():
            if not _HEX.fullmatch(value):
                raise ValueError(f"{path.name}: {token} is {value!r}, expected #rrggbb")
            colors[token] = value
    for step in range(REWARD_STEPS):
        colors[f"on-reward-{step}"] = _text_on_reward(colors, raw["scheme"], step)
    return Tokens(raw["scheme"], colors)


def reward_token(reward: float, low: float, high: float) -> str:
    """Return the theme colour of a reward on a scale from `low` to `high`."""
    share = (reward - low) / (high - low) if high > low else 0.5
    return f"reward-{min(REWARD_STEPS - 1, max(0, int(share * REWARD_STEPS)))}"


def advantage_token(advantage: float, largest: float) -> str | None:
    """Return the background token of an advantage, None for no tint; `largest` is the absolute
    advantage at full colour."""
    if largest <= 0 or advantage == 0 or math.isnan(advantage):
        return None
    share = min(1.0, abs(advantage) / largest)
    step = min(ADVANTAGE_STEPS, 1 + int(share * ADVANTAGE_STEPS))
    return f"advantage-{'pos' if advantage > 0 else 'neg'}-{step}"


def contrast(first: str, second: str) -> float:
    """Return the WCAG 2 contrast ratio of two #rrggbb colours, 1 to 21."""
    lighter, darker = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(color: str) -> float:
    channels = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _text_on_reward(colors: Mapping[str, str], scheme: str, step: int) -> str:
    """Return the text colour on a step of the reward ramp: `text` on the half near the background,
    as in tokens.md."""
    if scheme == "dark":
        return colors["text"] if step <= 2 else colors["background"]
    return colors["text"] if step <= 4 else colors["raised"]
