"""Reader of image files for a model that sees: decodes an image and makes the input of the vision
model.

Image files come from agents and are untrusted, so they are decoded in a process with limits
(worker.py), and there alone. Orientation and transparency are treated as vLLM treats them: the
EXIF orientation is applied, and transparent pixels lie on white.
"""

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps
from safetensors.numpy import save

from engine.runtime.files import replace_file

FORMATS = ("PNG", "JPEG", "WEBP", "GIF")
MOST_PIXELS = 50_000_000
"""Largest number of pixels of an image file."""
MOST_RATIO = 200
"""Largest ratio of the sides of an image; the Qwen-VL family's image processor refuses more."""
READ = re.compile(r"Qwen2VLImageProcessor(Fast|Pil)?")
"""Image processors that are run; they make the same input."""


class BadImage(Exception):
    """Image that cannot be given to the model; its text says why, as a predicate."""


class ImageReader:
    """Image processor of one model."""

    def __init__(self, folder: str) -> None:
        """Load the processor of the model in `folder`. Raises ValueError if it is none of the
        Qwen-VL family's."""
        os.environ["HF_HUB_OFFLINE"] = "1"
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import (
            Qwen2VLImageProcessorPil,
        )

        settings, _ = Qwen2VLImageProcessorPil.get_image_processor_dict(folder)
        kind = settings.get("image_processor_type", "Qwen2VLImageProcessor")
        if not READ.fullmatch(str(kind)):
            raise ValueError(f"its image processor is {str(kind)[:60]}, not Qwen2VLImageProcessor")
        self._processor: Any = Qwen2VLImageProcessorPil.from_pretrained(folder)
        Image.MAX_IMAGE_PIXELS = MOST_PIXELS
        Image.preinit()

    def read(self, file: str, inputs: str, most_tokens: int) -> dict[str, Any]:
        """Decode the image in `file`, and write the input of the vision model to `inputs` unless it
        has more than `most_tokens` tokens. Returns `width` and `height` in pixels, after the EXIF
        orientation, and `count`, the number of its tokens. Raises BadImage."""
        image = _opened(Path(file))
        processor = self._processor
        made = processor(images=image, return_tensors="np")
        grid = made["image_grid_thw"][0].astype(np.int64)
        count = int(grid.prod()) // int(processor.merge_size) ** 2
        if count <= most_tokens:
            pixels = np.ascontiguousarray(made["pixel_values"], dtype=np.float32)
            target = Path(inputs)
            target.parent.mkdir(exist_ok=True)
            replace_file(target, save({"pixels": pixels, "grid": grid}))
        return {"width": image.width, "height": image.height, "count": count}


def _opened(file: Path) -> Image.Image:
    """Decoded first frame of an image file, in RGB. Raises BadImage."""
    try:
        with Image.open(file, formats=FORMATS) as image:
            if image.width * image.height > MOST_PIXELS:
                raise BadImage(
                    f"has {image.width:,} × {image.height:,} pixels; at most "
                    f"{MOST_PIXELS // 10**6} million are read"
                )
            shorter, longer = sorted(image.size)
            if shorter < 1 or longer / shorter > MOST_RATIO:
                raise BadImage(f"is more than {MOST_RATIO} times as long as it is wide")
            return _on_white(ImageOps.exif_transpose(image))
    except BadImage:
        raise
    except Image.DecompressionBombError:
        raise BadImage(f"has more than {MOST_PIXELS // 10**6} million pixels") from None
    except MemoryError:
        raise
    except Exception as error:  # a decoder may raise anything for a damaged file
        raise BadImage(f"cannot be decoded: {str(error)[:200] or type(error).__name__}") from error


def _on_white(image: Image.Image) -> Image.Image:
    """Image in RGB; transparent pixels are laid on white."""
    if image.mode == "RGB" and "transparency" not in image.info:
        image.load()
        return image.copy()
    if image.mode not in ("RGBA", "LA", "PA") and "transparency" not in image.info:
        return image.convert("RGB")
    layered = image.convert("RGBA")
    found = Image.new("RGB", layered.size, (255, 255, 255))
    found.paste(layered, mask=layered.getchannel("A"))
    return found
