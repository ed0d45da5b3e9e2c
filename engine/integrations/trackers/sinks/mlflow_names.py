"""Metric and parameter names that an MLflow server accepts: letters, digits, `_ - . : /` and
spaces, up to 250 characters, no relative paths. Pure.

Changed names end in four digits of a hash of the original, so that different names stay distinct.
"""

import hashlib
import re

STRANGE = re.compile(r"[^/\w.\- :]")
LONGEST = 250


def named(name: str) -> str:
    """Return a name that MLflow accepts: `reward/part/pass@1` becomes `reward/part/pass_1-3f0c`."""
    parts = ["_" if part in ("", ".", "..") else STRANGE.sub("_", part) for part in name.split("/")]
    taken = "/".join(parts)
    if taken == name and len(name) <= LONGEST:
        return name
    mark = hashlib.sha256(name.encode()).hexdigest()[:4]
    return f"{taken[: LONGEST - 5]}-{mark}"
