"""Texts of settings and of the differences between runs. Pure functions."""

from collections.abc import Mapping
from typing import Any

from studio.text import formatting

ALGORITHM = "train.algorithm."
PRESET = "train.algorithm.preset"


def differences(run: Mapping[str, Any], reference: Mapping[str, Any]) -> list[str]:
    """Return the settings in which a run differs from a reference: "lr 0.0001", "seed default".
    Both arguments map the dotted keys of settings that differ from their defaults to values. If the
    presets differ, the other algorithm settings are omitted."""
    found = []
    keys = run.keys() | reference.keys()
    if run.get(PRESET) != reference.get(PRESET):  # it brings the other settings of the algorithm
        keys = {key for key in keys if key == PRESET or not key.startswith(ALGORITHM)}
    for key in sorted(keys):
        if key in run and (key not in reference or run[key] != reference[key]):
            found.append(f"{short_key(key)} {setting_words(run[key])}")
        elif key not in run:
            found.append(f"{short_key(key)} default")
    return found


def short_key(key: str) -> str:
    """Shorten a dotted key to its last part: "train.lr" is "lr"."""
    return key.rpartition(".")[2]


def setting_words(value: Any) -> str:
    """Format the value of a setting."""
    match value:
        case None:
            return formatting.ABSENT
        case bool():
            return "on" if value else "off"
        case float():
            mantissa, _, power = f"{value:.3g}".partition("e")
            exponent = f"e{int(power)}" if power else ""
            return f"{mantissa}{exponent}".replace("-", formatting.MINUS)
        case list():
            return ", ".join(map(setting_words, value)) or "none"
        case _:
            return str(value)
