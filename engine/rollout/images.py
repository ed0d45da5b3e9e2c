"""Images of a run's rollouts: stored files, and the inputs of the vision model made of them."""

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

from engine.policy.base import ImageInput
from engine.protocol.problems import RolloutError
from engine.protocol.records.conversations import Branch
from engine.rollout.rendering.chat import ChatFormat, not_text
from engine.rollout.rendering.images import ImageFacts, ReadImage, Vision
from engine.storage.run_folder.images import ImageStore
from engine.storage.run_folder.run import Run


@contextlib.asynccontextmanager
async def images_of_run(run: Run, chat: ChatFormat) -> AsyncIterator["RunImages"]:
    """Images of an open run, as a context manager; the inputs of the vision model, which take much
    space, are deleted with the block."""
    try:
        yield RunImages(chat, run.folder, run.config.model.max_context)
    finally:
        if chat.vision is not None:
            store = ImageStore(run.folder)
            await asyncio.shield(asyncio.to_thread(store.drop_inputs, chat.vision.digest))


class RunImages:
    """Images in the folder of a run, for the model of a chat format."""

    def __init__(self, chat: ChatFormat, run: Path, most_tokens: int) -> None:
        """`most_tokens`: token limit of a sequence; an image with more gets no input."""
        self.vision: Vision | None = chat.vision
        self._store = ImageStore(run)
        self._most_tokens = most_tokens
        self._facts: dict[str, ImageFacts] = {}
        self._reading: weakref.WeakValueDictionary[str, asyncio.Lock] = (
            weakref.WeakValueDictionary()
        )

    async def add(self, content: bytes) -> str:
        """Store an image file; returns its id. Raises RolloutError if the model cannot read it."""
        try:
            image = await asyncio.to_thread(self._store.add, content)
        except ValueError as error:
            raise RolloutError.of(
                "gateway.bad_image",
                f"An image of the request {error}.",
                "Send it in one of these formats.",
            ) from error
        await self.read([image])
        return image

    async def read(self, images: Iterable[str]) -> list[ReadImage]:
        """Read stored images, by their ids. The inputs of the vision model exist afterwards.
        Raises StoreError for an image that is not stored, RolloutError for one that cannot be
        read."""
        return [await self._read(image) for image in images]

    async def inputs(self, branch: Branch) -> list[ImageInput]:
        """Images of a recorded token sequence, with the inputs of the vision model. Raises like
        `read`."""
        found = await self.read(span.id for span in branch.images)
        return [
            ImageInput(start=span.start, count=span.count, id=span.id, file=image.file)
            for span, image in zip(branch.images, found, strict=True)
        ]

    async def _read(self, image: str) -> ReadImage:
        if self.vision is None:
            raise not_text()
        inputs = self._store.inputs(image, self.vision.digest)
        async with self._reading.setdefault(image, asyncio.Lock()):
            facts = self._facts.get(image)
            if facts is None or not (inputs.is_file() or facts.count > self._most_tokens):
                file = self._store.find(image)
                facts = await self.vision.read(file, inputs, self._most_tokens)
                self._facts[image] = facts
        return ReadImage(image, facts, str(inputs))
