"""Images in the messages of a run: files in its folder, each stored once under the hash of its
content.

`images/<SHA-256>.<png|jpg|webp|gif>` are the files as an agent sent them. `images/inputs/` holds
what the image processor made of them; it may be deleted and is made again.
"""

import hashlib
import re
import shutil
from pathlib import Path

from engine.protocol.problems import StoreError
from engine.runtime.files import replace_file, sync_tree

FOLDER, INPUTS = "images", "images/inputs"
MEDIA_TYPES = {
    "png": "image/png", "jpg": "image/jpeg", "webp": "image/webp", "gif": "image/gif",
}  # fmt: skip
"""Media types by file name extension."""
ID = re.compile(r"[0-9a-f]{64}")
MOST_BYTES = 20 * 2**20
"""Largest image file."""


class ImageStore:
    """Images of one run. Methods may be called from any thread."""

    def __init__(self, run: Path) -> None:
        """`run`: folder of the run."""
        self._run = run

    def add(self, content: bytes, wanted: str = "") -> str:
        """Store an image file durably unless it is stored already; returns its id, which must be
        `wanted` if that is given. Raises ValueError if it is no PNG, JPEG, WebP or GIF, StoreError
        if it cannot be written or is not the one wanted."""
        name, extension = hashlib.sha256(content).hexdigest(), extension_of(content)
        if wanted and name != wanted:
            raise self._missing(wanted)
        if extension is None:
            raise ValueError("is neither PNG nor JPEG, WebP or GIF")
        file = self._run / FOLDER / f"{name}.{extension}"
        try:
            if not file.is_file():
                file.parent.mkdir(exist_ok=True)
                replace_file(file, content)
        except OSError as error:
            raise StoreError.of(
                "store.image_not_written",
                f"An image of a message could not be stored: {error.strerror or error}.",
                "Free some space and check the permissions of the run folder.",
                where=str(file),
            ) from error
        return name

    def find(self, image: str) -> Path:
        """File of the image with this id. Raises StoreError if the run has none."""
        if ID.fullmatch(image):
            for extension in MEDIA_TYPES:
                file = self._run / FOLDER / f"{image}.{extension}"
                if file.is_file() and not file.is_symlink():
                    return file
        raise self._missing(image)

    def _missing(self, image: str) -> StoreError:
        return StoreError.of(
            "image.unknown",
            f"The run has no image {image[:12]!a}.",
            "It was not copied with the run; copy the folder images of the original run, too.",
            where=str(self._run / FOLDER),
        )

    def inputs(self, image: str, digest: str) -> Path:
        """File for the input of the vision model, which may not exist. `digest`: hash of the image
        processor's settings."""
        return self._run / INPUTS / f"{image}-{digest}.safetensors"

    def copy_to(self, run: Path) -> None:
        """Give the images to another run folder, as links to the same files where the disk can;
        none of them ever changes. Raises OSError."""
        for file in self._run.joinpath(FOLDER).glob("*.*"):
            known = ID.fullmatch(file.stem) and file.suffix[1:] in MEDIA_TYPES
            if not known or file.is_symlink() or not file.is_file():
                continue
            target = run / FOLDER / file.name
            target.parent.mkdir(exist_ok=True)
            try:
                target.hardlink_to(file)
            except OSError:
                shutil.copyfile(file, target)
        if (run / FOLDER).is_dir():
            sync_tree(run / FOLDER)

    def drop_inputs(self, digest: str) -> None:
        """Delete the inputs of the vision model that an image processor has made."""
        for file in (self._run / INPUTS).glob(f"*-{digest}.safetensors"):
            file.unlink(missing_ok=True)


def media_type(file: Path) -> str:
    """Media type of an image file by its name."""
    return MEDIA_TYPES[file.suffix[1:]]


def extension_of(content: bytes) -> str | None:
    """File name extension of an image by its first bytes; None if it is of another format."""
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return "png"
    if content.startswith(b"\xff\xd8\xff"):
        return "jpg"
    if content.startswith((b"GIF87a", b"GIF89a")):
        return "gif"
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "webp"
    return None
