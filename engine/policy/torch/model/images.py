"""Images of a model that reads them (Qwen-VL: 2409.12191, 2511.21631).

Each image gets token ids of its own above the vocabulary, one for each output of the vision model,
in place of the placeholder tokens. Whatever compares token sequences (cached keys, prefix trees)
then distinguishes images without knowing of them. The vision model is frozen and computes each
image alone, so sampler and trainer use the same numbers.

Positions have three dimensions (time, row, column). Those of text are equal; those of an image
count its rows and columns, and the text behind it continues after the larger of both. So each image
shifts the positions behind it.

T tokens, N outputs of the vision model for one image, H hidden size, L layers to which further
outputs are added (DeepStack, 2406.04334).
"""

import math
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers import PreTrainedModel

from engine.policy.base import IMAGE_ERRORS, ImageInput, SampleRequest, TrainItem
from engine.protocol.problems import PolicyError

R = TypeVar("R", SampleRequest, TrainItem)
KEPT_BYTES = 2**29
"""Bytes of outputs of the vision model that are kept; others are computed again."""


@dataclass(frozen=True)
class Seen:
    """Image that got token ids."""

    first: int
    """Token id of its first output."""
    grid: tuple[int, int, int]
    """Frames, rows and columns of its patches."""
    outputs: tuple[int, int, int]
    """Frames, rows and columns of its outputs."""
    pixels: Callable[[], Tensor]
    """Function that returns its pixels [P, D]."""

    @property
    def count(self) -> int:
        return math.prod(self.outputs)

    @property
    def shift(self) -> int:
        """Shift of the positions behind it; negative, as it has fewer rows and columns than
        outputs."""
        return max(self.outputs[1:]) - self.count

    def places(self) -> Tensor:
        """Positions [3, N] of its outputs relative to the first: time, row, column."""
        lines = [torch.arange(length) for length in self.outputs]
        return torch.stack(torch.meshgrid(*lines, indexing="ij")).reshape(3, -1)


@dataclass(frozen=True)
class Run:
    """Tokens of one image in a list of tokens."""

    index: int
    image: str
    offset: int
    """Number of outputs of the image before the first of these tokens."""
    count: int


class ImageTokens:
    """Token ids, positions and embeddings of the images of one model."""

    def __init__(self, base: PreTrainedModel) -> None:
        self._model, self._embedding = base.model, base.get_input_embeddings()
        self._above = self._embedding.num_embeddings
        self._merge = base.config.vision_config.spatial_merge_size
        self.placeholder = base.config.image_token_id
        self._seen: dict[str, Seen] = {}
        self._firsts: list[int] = []
        self._ids: list[str] = []
        self._outputs: OrderedDict[str, Tensor] = OrderedDict()

    def applied(self, request: R) -> R:
        """Request or item whose placeholder tokens are replaced by the token ids of its images.
        Raises PolicyError if an image cannot be read or does not fit its placeholders."""
        if not request.images:
            return request
        tokens = list(request.tokens)
        for image in request.images:
            seen = self._seen.get(image.id) or self._read(image)
            place = slice(image.start, image.start + image.count)
            if tokens[place] != [self.placeholder] * seen.count:
                raise _unreadable(image, f"it has {seen.count} tokens in place of {image.count}")
            tokens[place] = range(seen.first, seen.first + seen.count)
        return request.model_copy(update={"tokens": tokens})

    def positions(self, tokens: list[int], start: int, shift: int) -> tuple[Tensor, int]:
        """Return (positions [3, T] of `tokens`, shift of the positions behind them). `start` is
        the number of tokens before them, `shift` the shift by the images among those."""
        found = torch.arange(start, start + len(tokens)).repeat(3, 1) + shift
        for run in self._runs(tokens):
            seen, end = self._seen[run.image], run.index + run.count
            before = start + run.index - run.offset + shift
            places_3N = seen.places()[:, run.offset : run.offset + run.count]
            found[:, run.index : end] = before + places_3N
            if run.offset + run.count == seen.count:
                shift += seen.shift
                found[:, end:] += seen.shift
        return found, shift

    def shift(self, tokens: list[int]) -> int:
        """Shift of the positions behind `tokens`."""
        ended = (
            self._seen[run.image].shift
            for run in self._runs(tokens)
            if run.offset + run.count == self._seen[run.image].count
        )
        return sum(ended)

    def inputs(self, tokens_1S: Tensor) -> dict[str, Any]:
        """Arguments of the decoder for tokens [1, S]: the ids, or the embeddings if images are
        among them."""
        images_1S = tokens_1S >= self._above
        if not images_1S.any():
            return {"input_ids": tokens_1S}
        parts = [
            self._output(run.image)[:, run.offset : run.offset + run.count]
            for run in self._runs(tokens_1S[0].tolist())
        ]
        outputs_LNH = torch.cat(parts, 1)
        embedded_1SH = self._embedding(tokens_1S.masked_fill(images_1S, 0)).clone()
        embedded_1SH[images_1S] = outputs_LNH[0]
        found = {"inputs_embeds": embedded_1SH}
        if len(outputs_LNH) > 1:
            further = {"visual_pos_masks": images_1S, "deepstack_visual_embeds": outputs_LNH[1:]}
            return found | further
        return found

    def add(self, image: str, grid: tuple[int, int, int], pixels: Callable[[], Tensor]) -> Seen:
        """Give token ids to an image with this id (name). `grid`: frames, rows and columns of
        patches; `pixels`: function that returns the pixels [P, D] of its patches."""
        frames, rows, columns = grid
        first = self._above
        if self._ids:
            last = self._seen[self._ids[-1]]
            first = last.first + last.count
        outputs = (frames, rows // self._merge, columns // self._merge)
        seen = Seen(first, grid, outputs, pixels)
        self._seen[image] = seen
        self._firsts.append(first)
        self._ids.append(image)
        return seen

    def _runs(self, tokens: list[int]) -> Iterator[Run]:
        """Images, or parts of them, among tokens."""
        index = 0
        while index < len(tokens):
            if (token := tokens[index]) < self._above:
                index += 1
                continue
            image = self._ids[bisect_right(self._firsts, token) - 1]
            offset = token - self._seen[image].first
            count = min(self._seen[image].count - offset, len(tokens) - index)
            yield Run(index, image, offset, count)
            index += count

    @torch.inference_mode(False)
    @torch.no_grad()
    def _output(self, image: str) -> Tensor:
        """Outputs [1 + L, N, H] of the vision model for an image."""
        if image in self._outputs:
            self._outputs.move_to_end(image)
            return self._outputs[image]
        seen, device = self._seen[image], self._embedding.weight.device
        grid_13 = torch.tensor([seen.grid], device=device)
        found = self._model.get_image_features(seen.pixels().to(device), grid_13)
        layers = [found.pooler_output[0], *(getattr(found, "deepstack_features", None) or [])]
        outputs = torch.stack(layers).to(self._embedding.weight.dtype)
        self._outputs[image] = outputs
        while len(self._outputs) > 1 and sum(map(_bytes, self._outputs.values())) > KEPT_BYTES:
            self._outputs.popitem(last=False)
        return outputs

    def _read(self, image: ImageInput) -> Seen:
        def stored(name: str) -> Tensor:
            try:
                with safe_open(image.file, "pt") as file:
                    return file.get_tensor(name)  # type: ignore[no-any-return]
            except (OSError, SafetensorError) as error:
                raise _unreadable(image, str(error)) from error

        frames, rows, columns = stored("grid").tolist()
        return self.add(image.id, (frames, rows, columns), lambda: stored("pixels"))


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _unreadable(image: ImageInput, why: str) -> PolicyError:
    return PolicyError.of(
        f"{IMAGE_ERRORS}unreadable",
        f"Image {image.id[:12]} cannot be given to the model: {why}.",
        "Send the image again.",
    )
