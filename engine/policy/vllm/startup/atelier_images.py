"""Middleware of a vLLM server: images that a request names by file, as input of the vision model.

A request to /inference/v1/generate may have `atelier_images`, a list of objects with `file` (a
safetensors file with `pixels` [P, D] and `grid` [3]), `id`, `start` and `count` (its placeholder
tokens). They become the `features` of vLLM's own form, so the server computes with exactly these
pixels. Runs in the environment of vLLM.
"""

import asyncio
import json
import math
from functools import lru_cache
from typing import Any

from safetensors.torch import load_file
from transformers import BatchFeature
from vllm.entrypoints.scale_out.token_in_token_out.mm_serde import encode_mm_kwargs_item
from vllm.model_executor.models.qwen2_vl import _create_qwen2vl_field_factory
from vllm.multimodal.inputs import MultiModalKwargsItems

PATH = "/inference/v1/generate"
KEPT = 16
"""Number of encoded images that are kept; one takes up to some 30 MB."""


class Images:
    """ASGI middleware."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"] != PATH:
            await self._app(scope, receive, send)
            return
        data, more = b"", True
        while more:
            message = await receive()
            data += message.get("body", b"")
            more = message.get("more_body", False)
        body = json.loads(data)
        if images := body.pop("atelier_images", None):
            body["features"] = await asyncio.to_thread(features, images)
        data, sent = json.dumps(body).encode(), False
        names = (b"content-length", b"transfer-encoding")
        headers = [pair for pair in scope["headers"] if pair[0] not in names]
        headers.append((b"content-length", str(len(data)).encode()))

        async def again() -> Any:
            nonlocal sent
            if sent:
                return await receive()
            sent = True
            return {"type": "http.request", "body": data, "more_body": False}

        await self._app({**scope, "headers": headers}, again, send)


def features(images: list[dict[str, Any]]) -> dict[str, Any]:
    """`features` of a request with these images."""
    encoded = [_encoded(image["file"], image["count"]) for image in images]
    places = [{"offset": image["start"], "length": image["count"]} for image in images]
    return {
        "mm_hashes": {"image": [image["id"] for image in images]},
        "mm_placeholders": {"image": places},
        "kwargs_data": {"image": encoded},
    }


@lru_cache(KEPT)
def _encoded(file: str, count: int) -> str:
    stored = load_file(file)
    pixels_PD, grid_13 = stored["pixels"], stored["grid"][None]
    merge = math.isqrt(len(pixels_PD) // count)
    inputs = BatchFeature({"pixel_values": pixels_PD, "image_grid_thw": grid_13})
    fields = _create_qwen2vl_field_factory(merge)(inputs)
    return encode_mm_kwargs_item(MultiModalKwargsItems.from_hf_inputs(inputs, fields)["image"][0])
