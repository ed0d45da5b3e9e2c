"""Validated names on the wire: relative paths, file names, run ids and SHA-256 digests.

Every path, id and hash from another machine has one of these types, so that an invalid one is
refused when the message is parsed. The rules hold for every file system, since a folder may move
between machines: no name may leave its folder, be reserved by a system, or be displayed differently
from how it is stored.
"""

import re
import unicodedata
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

MOST_PATH_CHARS = 1024
MOST_NAME_BYTES = 255
MOST_DEPTH = 32
MOST_FILE_BYTES = 2**43
"""Size limit of one file, 8 TiB; a larger size is treated as an error or an attack."""
RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$)(\..*)?")
"""Device names of Windows, with any extension."""
HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode categories not allowed in file names: controls, format characters (bidi overrides,
zero-width marks that some file systems ignore), surrogates, line and paragraph separators."""
NEVER = (".git",)
"""Folders whose files make other programs execute something."""


def check_name(name: str) -> str:
    """Return one part of a path unchanged if every supported system can safely store a file of that
    name. Raises ValueError with the reason if not."""
    if name in ("", ".", ".."):
        raise ValueError(f"{name!r} is not a file name")
    if "/" in name or "\\" in name or re.match("[A-Za-z]:", name):
        raise ValueError(f"{name!r} contains a separator or a drive")
    if any(unicodedata.category(c) in HIDDEN for c in name):
        raise ValueError(f"{name!a} contains a control or an invisible character")
    if len(name.encode()) > MOST_NAME_BYTES:
        raise ValueError(f"a file name is longer than {MOST_NAME_BYTES} bytes")
    if name[-1] in ". ":
        raise ValueError(f"{name!r} ends with a character that some file systems drop")
    if RESERVED.fullmatch(name):
        raise ValueError(f"{name!r} is the name of a device on Windows")
    if unicodedata.normalize("NFKC", name).casefold() in NEVER:
        raise ValueError(f"{name!r} is a folder that other programs execute code from")
    return name


def check_path(path: str) -> str:
    """Return a relative path with forward slashes unchanged if every supported system can safely
    store it. Raises ValueError with the reason if not."""
    if len(path) > MOST_PATH_CHARS:
        raise ValueError(f"a path is longer than {MOST_PATH_CHARS} characters")
    parts = path.split("/")
    if len(parts) > MOST_DEPTH:
        raise ValueError(f"a path is deeper than {MOST_DEPTH} folders")
    for part in parts:
        check_name(part)
    if path[0] == "~":
        raise ValueError(f"{path!r} begins with ~, like a home folder")
    return path


FileName = Annotated[str, AfterValidator(check_name)]
"""Name of a file or folder, without separators."""
RelativePath = Annotated[str, AfterValidator(check_path)]
"""Path of a file below a folder: relative, with forward slashes, never leaving the folder."""
RUN_ID = r"^[0-7][0-9A-HJKMNP-TV-Z]{25}$"
"""A ULID in Crockford's base 32 (github.com/ulid/spec)."""
RunId = Annotated[str, StringConstraints(pattern=RUN_ID)]
SHA256 = r"^[0-9a-f]{64}$"
Sha256 = Annotated[str, StringConstraints(pattern=SHA256)]
FileBytes = Annotated[int, Field(ge=0, le=MOST_FILE_BYTES)]
"""Size of a file or of a part of it, in bytes."""
Seq = Annotated[int, Field(ge=0, lt=2**53)]
"""Sequence number of an event within its run."""


def is_run_id(text: str) -> bool:
    return re.fullmatch(RUN_ID[1:-1], text) is not None
