"""Validated names that cross a wire: relative paths, file names, run ids and SHA-256 digests.

Every path, id and hash that another machine sends has one of these types, so that a bad one is
refused where the message is parsed. The rules hold for every file system, since a folder may
move between machines: no name that leaves its folder, that a system reserves, or that is shown
differently from how it is stored.
"""

import re
import unicodedata
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

MOST_PATH_CHARS = 1024
MOST_NAME_BYTES = 255
MOST_DEPTH = 32
MOST_FILE_BYTES = 2**43
"""Size limit of one file, 8 TiB; a larger size is taken for an error or an attack."""
RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$)(\..*)?")
"""Device names of Windows, with any extension."""
HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode categories that no file name may hold: controls, format characters (bidi overrides,
zero-width marks that some file systems ignore), surrogates, line and paragraph separators."""
NEVER = (".git",)
"""Folders in which a file makes programs execute something."""


def check_name(name: str) -> str:
    """Check one part of a path, and return it. Raises ValueError."""
    if name in ("", ".", ".."):
        raise ValueError(f"{name!r} is no file name")
    if "/" in name or "\\" in name or re.match("[A-Za-z]:", name):
        raise ValueError(f"{name!r} holds a separator or a drive")
    if any(unicodedata.category(c) in HIDDEN for c in name):
        raise ValueError(f"{name!a} holds a control or an invisible character")
    if len(name.encode()) > MOST_NAME_BYTES:
        raise ValueError(f"a file name is longer than {MOST_NAME_BYTES} bytes")
    if name[-1] in ". ":
        raise ValueError(f"{name!r} ends with a character that some file systems drop")
    if RESERVED.fullmatch(name):
        raise ValueError(f"{name!r} is the name of a device on Windows")
    if unicodedata.normalize("NFKC", name).casefold() in NEVER:
        raise ValueError(f"{name!r} is a folder that belongs to another program")
    return name


def check_path(path: str) -> str:
    """Check a path below some folder, with slashes, and return it. Raises ValueError."""
    if len(path) > MOST_PATH_CHARS:
        raise ValueError(f"a path is longer than {MOST_PATH_CHARS} characters")
    parts = path.split("/")
    if len(parts) > MOST_DEPTH:
        raise ValueError(f"a path is deeper than {MOST_DEPTH} folders")
    for part in parts:
        check_name(part)
    if path[0] == "~":
        raise ValueError(f"{path!r} looks like somebody's home")
    return path


FileName = Annotated[str, AfterValidator(check_name)]
"""A file or folder in one folder."""
RelativePath = Annotated[str, AfterValidator(check_path)]
"""A file below a folder: relative, with slashes, never leaving it."""
RUN_ID = r"^[0-7][0-9A-HJKMNP-TV-Z]{25}$"
"""A ULID in Crockford's base 32 (github.com/ulid/spec)."""
RunId = Annotated[str, StringConstraints(pattern=RUN_ID)]
SHA256 = r"^[0-9a-f]{64}$"
Sha256 = Annotated[str, StringConstraints(pattern=SHA256)]
FileBytes = Annotated[int, Field(ge=0, le=MOST_FILE_BYTES)]
"""Size of one file or of its part."""
Seq = Annotated[int, Field(ge=0, lt=2**53)]
"""Number of an event within its run."""


def is_run_id(text: str) -> bool:
    return re.fullmatch(RUN_ID[1:-1], text) is not None
