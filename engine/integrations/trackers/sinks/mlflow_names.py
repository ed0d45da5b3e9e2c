"""Names of ours → names that an MLflow server takes: letters, digits, `_ - . : /` and spaces, 250
characters, and no path that would be another one. Pure.

What has to change ends in four digits of the name as it was: two names stay two.
"""

import hashlib
import re

STRANGE = re.compile(r"[^/\w.\- :]")
LONGEST = 250


def named(name: str) -> str:
    """`reward/part/pass@1` → `reward/part/pass_1-3f0c`; one that it takes stays as it is."""
    parts = ["_" if part in ("", ".", "..") else STRANGE.sub("_", part) for part in name.split("/")]
    taken = "/".join(parts)
    if taken == name and len(name) <= LONGEST:
        return name
    mark = hashlib.sha256(name.encode()).hexdigest()[:4]
    return f"{taken[: LONGEST - 5]}-{mark}"
