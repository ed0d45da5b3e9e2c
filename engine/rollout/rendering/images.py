"""Images of a model that sees: their placeholders in prompts, and the input of the vision model.

A template writes one placeholder token for each image. In the token sequence it is repeated, once
for each output of the vision model. Image files are decoded in a process of their own
(image_reader.py), which starts at the first image.
"""

import hashlib
import json
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from engine.models.architectures import reads_images
from engine.models.file_checks import read_json
from engine.protocol.problems import AtelierError, ModelError, RolloutError
from engine.protocol.records.conversations import ImageSpan
from engine.rollout.rendering.renderer import RenderClient
from engine.rollout.rendering.worker import IMAGE_MEMORY_BYTES, IMAGE_S

PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")
"""Files of a model folder that describe its image processor."""
PLACEHOLDER = "<|image_pad|>"
VIDEO = "<|video_pad|>"


@dataclass(frozen=True)
class ImageFacts:
    """Size of an image, and number of placeholder tokens that stand for it."""

    width: int
    """Pixels, after the EXIF orientation was applied."""
    height: int
    count: int


class ReadImage(NamedTuple):
    """Image that the model can be given."""

    id: str
    """SHA-256 of the image file."""
    facts: ImageFacts
    file: str
    """File with the input of the vision model."""


class Vision:
    """Images of one model. `close` it."""

    def __init__(self, folder: Path, tokens: dict[str, int]) -> None:
        """`tokens`: ids of the model's special tokens. Raises ModelError if the folder has no image
        processor or the tokenizer no placeholder."""
        found = [folder / name for name in PROCESSOR_FILES if (folder / name).is_file()]
        if not found:
            raise ModelError.of(
                "model.no_image_processor",
                f"{folder.name} reads images, but its folder has no {PROCESSOR_FILES[0]}.",
                "Download the model again, with all its files.",
                where=str(folder),
            )
        known = {number: text for text, number in tokens.items()}
        token = read_json(folder / "config.json").get("image_token_id", tokens.get(PLACEHOLDER))
        if token not in known:
            raise ModelError.of(
                "model.no_image_token",
                f"{folder.name} reads images, but its tokenizer has no {PLACEHOLDER} token.",
                "Use the tokenizer of the original model.",
                where=str(folder),
            )
        self.token: int = token
        """Id of the placeholder token."""
        self.placeholder = known[token]
        """Text of the placeholder token."""
        self.digest = hashlib.sha256(b"\0".join(map(Path.read_bytes, found))).hexdigest()[:16]
        """Hash of the image processor's settings."""
        self._client = _ImageClient(folder.name, {"op": "load_images", "folder": str(folder)})

    def close(self) -> None:
        """End the image process; waits for it."""
        self._client.close()

    async def read(self, file: Path, inputs: Path, most_tokens: int) -> ImageFacts:
        """Read an image file, and write the input of the vision model to `inputs` unless it has
        more than `most_tokens` tokens. Raises RolloutError if the image cannot be read, ModelError
        if the image processor cannot be loaded."""
        answer = await self._client.request(
            "image", file=str(file), inputs=str(inputs), most_tokens=most_tokens
        )
        return ImageFacts(**answer.head)

    def refuse_placeholders(self, texts: Any) -> None:
        """Raise RolloutError if a text of the request, which is JSON, has a placeholder in it."""
        found = json.dumps(texts, ensure_ascii=False)
        for sign in (self.placeholder, VIDEO):
            if sign in found:
                raise RolloutError.of(
                    "gateway.placeholder",
                    f"A message contains the text {sign}, which stands for an image in this "
                    "model's prompts.",
                    "Remove it from the text; send images as parts of the message.",
                )

    def expand(
        self, tokens: Sequence[int], start: int, images: Sequence[ReadImage]
    ) -> tuple[list[int], list[ImageSpan]]:
        """Repeat the placeholders among `tokens`, one for each image, as often as their images
        need. `start` is the position of the first token in its sequence. Returns the tokens and
        the spans of the images. Raises RolloutError if there are more or fewer placeholders than
        images."""
        if tokens.count(self.token) != len(images):
            raise RolloutError.of(
                "gateway.images_not_shown",
                f"The chat template shows {tokens.count(self.token)} of {len(images)} images.",
                "Send images in messages of the user; some templates leave them out elsewhere.",
            )
        waiting, spans = iter(images), list[ImageSpan]()
        found: list[int] = []
        for token in tokens:
            count = 1
            if token == self.token:
                image = next(waiting)
                count = image.facts.count
                spans.append(ImageSpan(start=start + len(found), count=count, id=image.id))
            found += [token] * count
        return found, spans


def vision_of(folder: Path, tokens: dict[str, int]) -> Vision | None:
    """Images of the model in `folder`; None if it reads text only. Raises like `Vision`."""
    return Vision(folder, tokens) if reads_images(read_json(folder / "config.json")) else None


def images_of(messages: Sequence[dict[str, Any]]) -> list[str]:
    """Ids of the images in messages, in order."""
    return [
        part["id"]
        for message in messages
        if isinstance(message.get("content"), list)
        for part in message["content"]
        if part.get("type") == "image"
    ]


class _ImageClient(RenderClient):
    """Client of an image process."""

    def _not_loaded(self, head: dict[str, Any]) -> AtelierError:
        return ModelError.of(
            "model.bad_image_processor",
            f"The image processor of {self._name} cannot be loaded: "
            f"{head.get('message', 'it needs too much memory')}.",
            "Use the files of the original model.",
            where=self._name,
        )

    def _overrun(self, code: int | None) -> RolloutError:
        why = {
            -signal.SIGPROF: f"takes more than {IMAGE_S:g} s to read",
            None: f"needs more than {IMAGE_MEMORY_BYTES // 2**30} GB of memory",
        }.get(code, f"could not be read: the process of the image processor ended (exit {code})")
        return _bad_image(why)

    def _refused(self, error: str, head: dict[str, Any]) -> RolloutError:
        return _bad_image(head["message"])


def _bad_image(why: str) -> RolloutError:
    return RolloutError.of(
        "gateway.bad_image",
        f"An image of the request {why}.",
        "Send a smaller image, as PNG, JPEG, WebP or GIF.",
    )
