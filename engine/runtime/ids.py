"""Ids that sort by time, and readable run names."""

import os
import secrets
import time

CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

COLOURS = [
    "amber", "azure", "bronze", "cedar", "chalk", "cobalt", "copper", "coral", "crimson",
    "ebony", "fern", "flax", "garnet", "ginger", "granite", "hazel", "indigo", "ivory", "jade",
    "lilac", "linen", "maple", "marble", "moss", "ochre", "olive", "onyx", "opal", "pearl",
    "pine", "plum", "russet", "saffron", "sage", "sand", "scarlet", "sienna", "silver", "slate",
    "sorrel", "teal", "umber", "violet", "walnut",
]  # fmt: skip
BIRDS = [
    "avocet", "bittern", "bunting", "bustard", "condor", "cormorant", "crane", "curlew",
    "dipper", "dove", "dunlin", "egret", "eider", "falcon", "finch", "gannet", "godwit",
    "goshawk", "grebe", "grouse", "harrier", "heron", "hoopoe", "ibis", "jackdaw", "kestrel",
    "kingfisher", "kite", "lapwing", "lark", "linnet", "magpie", "martin", "merlin", "nightjar",
    "oriole", "osprey", "ouzel", "owl", "petrel", "pipit", "plover", "puffin", "quail", "raven",
    "redstart", "robin", "sandpiper", "shrike", "siskin", "snipe", "starling", "stork",
    "swallow", "swift", "teal", "tern", "thrush", "wagtail", "warbler", "wheatear", "whimbrel",
    "wren",
]  # fmt: skip


def ulid() -> str:
    """New ULID, 26 characters: Unix milliseconds, then 80 random bits (github.com/ulid/spec)."""
    number = int(time.time() * 1000) << 80 | int.from_bytes(os.urandom(10), "big")
    return "".join(CROCKFORD[number >> shift & 31] for shift in range(125, -1, -5))


def ulid_time(name: str) -> float | None:
    """Unix seconds at which a ULID was made; None for any other text."""
    if len(name) != 26 or not set(name) <= set(CROCKFORD) or name[0] > "7":
        return None
    number = 0
    for character in name[:10]:
        number = number << 5 | CROCKFORD.index(character)
    return number / 1000


def run_name() -> str:
    return f"{secrets.choice(COLOURS)}-{secrets.choice(BIRDS)}"
