"""What tells two contents apart."""

import hashlib
from pathlib import Path


def sha256_of(file: Path) -> str:
    """In hexadecimal digits."""
    with file.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()
