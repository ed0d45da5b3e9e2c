"""Images in the requests of three dialects, through the official clients over real HTTP: a real
image process, the template of Qwen3-VL, and a scripted policy."""

import asyncio
import base64
import hashlib
import io
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anthropic
import numpy as np
import openai
import pytest
from PIL import Image
from safetensors.numpy import load_file

from engine.protocol.problems import ModelError, StoreError
from engine.protocol.records.conversations import IMAGE
from engine.rollout.images import RunImages
from engine.rollout.rendering.chat import ChatFormat
from engine.rollout.rollout import _message
from engine.storage.run_folder.images import ImageStore
from tests.engine.rollout.conftest import GatewayHarness, main_conversation
from tests.support.families import FAMILIES, make_family

ROOM = {"free": True, "max_tokens": 1_000, "max_context": 3_000, "max_turns": 100}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def folder(title: str) -> Path:
        if title not in made:
            made[title] = make_family(FAMILIES[title], tmp_path_factory.mktemp("sees") / "model")
        return made[title]

    return folder


@pytest.fixture
def chat(folders: Callable[[str], Path]) -> Iterator[ChatFormat]:
    with ChatFormat(folders("Qwen3-VL")) as chat:
        yield chat


@pytest.fixture
def sees(chat: ChatFormat, tmp_path: Path) -> Iterator[GatewayHarness]:
    """Gateway with a model that reads images."""
    harness = GatewayHarness(chat, **ROOM, images=RunImages(chat, tmp_path, 3_000))
    yield harness
    harness.close()


def picture(width: int = 64, height: int = 64, form: str = "PNG", mode: str = "RGB") -> bytes:
    """Image file with a gradient."""
    file = io.BytesIO()
    Image.linear_gradient("L").resize((width, height)).convert(mode).save(file, form)
    return file.getvalue()


def url(data: bytes, media: str = "image/png") -> str:
    return f"data:{media};base64,{base64.b64encode(data).decode()}"


def ask(*images: bytes, text: str = "What is this?") -> list[dict[str, Any]]:
    parts = [{"type": "image_url", "image_url": {"url": url(one), "detail": "high"}}
             for one in images]  # fmt: skip
    return [{"role": "user", "content": [*parts, {"type": "text", "text": text}]}]


def name(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_image_is_stored_once_and_given_to_the_policy(sees: GatewayHarness, tmp_path: Path) -> None:
    first, second = picture(), picture(96, 32)
    answer = sees.ask(messages=ask(first))
    request = sees.policy.asked[-1]
    assert answer.usage.prompt_tokens == len(request.tokens)
    (image,) = request.images
    assert (image.id, image.count) == (name(first), 4)
    assert sees.policy.chat.vision is not None
    inside = request.tokens[image.start : image.start + image.count]
    assert inside == [sees.policy.chat.vision.token] * 4
    assert request.tokens.count(inside[0]) == 4
    made = load_file(image.file)
    assert made["pixels"].shape == (16, 1536)
    assert made["pixels"].dtype == np.float32
    assert made["grid"].tolist() == [1, 4, 4]
    message = {"role": "assistant", "content": answer.choices[0].message.content}
    sees.ask(messages=[*ask(first), message, *ask(second, first)])
    later = sees.policy.asked[-1]
    assert [one.id for one in later.images] == [name(first), name(second), name(first)]
    (branch,) = sees.session.recording.branches()
    assert [(one.start, one.count, one.id) for one in branch.images] == [
        (one.start, one.count, one.id) for one in later.images
    ]
    assert len(branch.pieces) == len(branch.tokens)
    assert branch.pieces.count("<|image_pad|>") == 3
    files = sorted(file.name for file in (tmp_path / "images").glob("*.png"))
    assert files == sorted([f"{name(first)}.png", f"{name(second)}.png"])
    messages = [_message(one) for one in main_conversation(sees.session.recording).messages]
    assert messages[0].content == f"{IMAGE}What is this?"
    assert messages[2].images == [name(second), name(first)]
    assert "base64" not in str(main_conversation(sees.session.recording).messages)


def test_dialects_agree(sees: GatewayHarness) -> None:
    """The same conversation in three forms has the same tokens and images."""
    data = picture(64, 32)
    system = "Be short."
    sees.ask(messages=[{"role": "system", "content": system}, *ask(data)])
    parts = [{"type": "input_image", "image_url": url(data), "detail": "auto"},
             {"type": "input_text", "text": "What is this?"}]  # fmt: skip
    sees.respond(instructions=system, input=[{"role": "user", "content": parts}])
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(data).decode()}
    blocks = [{"type": "image", "source": source}, {"type": "text", "text": "What is this?"}]
    turns: Any = [{"role": "user", "content": blocks}]
    sees.message(system=system, messages=turns)
    first, second, third = sees.policy.asked
    assert first.tokens == second.tokens == third.tokens
    assert first.images == second.images == third.images
    counted = sees.anthropic.messages.count_tokens(model="m", system=system, messages=turns)
    assert counted.input_tokens == len(first.tokens)


def test_response_is_continued_without_sending_the_image_again(sees: GatewayHarness) -> None:
    data = picture()
    parts = [{"type": "input_image", "image_url": url(data), "detail": "auto"}]
    first = sees.respond(input=[{"role": "user", "content": parts}])
    sees.respond(input="And now?", previous_response_id=first.id)
    (image,) = sees.policy.asked[-1].images
    assert image.id == name(data)
    assert len(sees.session.recording.branches()) == 1


def test_images_in_tool_results(sees: GatewayHarness) -> None:
    data = picture()
    tool = {"name": "look", "parameters": {"type": "object"}}
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    parts = ask(data, text="seen")[0]["content"]
    messages = [{"role": "user", "content": "Look."},
                {"role": "assistant", "content": "", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c1", "content": parts}]  # fmt: skip
    sees.ask(messages=messages, tools=[{"type": "function", "function": tool}])
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(data).decode()}
    result = [{"type": "image", "source": source}, {"type": "text", "text": "seen"}]
    sees.message(
        tools=[{"name": "look", "input_schema": {"type": "object"}}],
        messages=[
            {"role": "user", "content": "Look."},
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": "c1", "name": "look", "input": {}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": result}]},
        ],
    )  # fmt: skip
    sees.respond(
        tools=[{"type": "function", **tool}],
        input=[
            {"role": "user", "content": "Look."},
            {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": [
                {"type": "input_image", "image_url": url(data)},
                {"type": "input_text", "text": "seen"}]},
        ],
    )  # fmt: skip
    first, second, third = sees.policy.asked
    assert len(first.images) == 1
    assert first.tokens == second.tokens == third.tokens
    assert first.images == second.images == third.images


def test_formats_orientation_and_transparency(chat: ChatFormat, tmp_path: Path) -> None:
    """Input of the vision model equals that of transformers' processor for the image that vLLM
    gives it: turned by its EXIF orientation, on white."""

    images = RunImages(chat, tmp_path, 3_000)

    def pixels(data: bytes) -> tuple[tuple[int, int], np.ndarray]:
        async def read() -> Any:
            return (await images.read([await images.add(data)]))[0]

        found = asyncio.run(read())
        return (found.facts.width, found.facts.height), load_file(found.file)["pixels"]

    plain = Image.linear_gradient("L").resize((96, 64)).convert("RGB")

    def saved(image: Image.Image, form: str, **options: Any) -> bytes:
        file = io.BytesIO()
        image.save(file, form, **options)
        return file.getvalue()

    size, wanted = pixels(saved(plain, "PNG"))
    assert size == (96, 64)
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees
    turned = plain.transpose(Image.Transpose.ROTATE_90)
    for form in ("PNG", "WEBP"):
        options = {"lossless": True} if form == "WEBP" else {}
        size, found = pixels(saved(turned, form, exif=exif, **options))
        assert size == (96, 64)
        np.testing.assert_array_equal(found, wanted)
    clear = Image.new("RGBA", (96, 64), (255, 0, 0, 0))
    _, found = pixels(saved(clear, "PNG"))
    np.testing.assert_allclose(found, 1.0, atol=1e-6)
    frames = [Image.new("RGB", (96, 64), colour) for colour in ("white", "black")]
    _, found = pixels(saved(frames[0], "GIF", save_all=True, append_images=frames[1:]))
    np.testing.assert_allclose(found, 1.0, atol=1e-6)
    assert pixels(saved(plain, "JPEG"))[0] == (96, 64)


def bomb() -> bytes:
    """Small PNG file that declares 60,000 × 60,000 pixels."""
    head = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", head), (b"IDAT", zlib.compress(bytes(10_000))), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


BAD: list[tuple[list[dict[str, Any]], str]] = [
    (ask(picture(10, 2100)), "more than 200 times as long"),
    (ask(bomb()), "more than 50 million pixels"),
    (ask(picture()[:100]), "cannot be decoded"),
    (ask(b"GIF89a" + bytes(40)), "cannot be decoded"),
    (ask(picture(form="BMP")), "neither PNG nor JPEG, WebP or GIF"),
    (ask(b"<svg xmlns='http://www.w3.org/2000/svg'/>"), "neither PNG"),
    ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:;base64,*"}}]}],
     r"messages\.0\.content\.0: .*not valid base64"),
    ([{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]}],
     "downloads no images"),
    ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], "has no url"),
    ([{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}],
     "not a part of type input_audio"),
    ([{"role": "user", "content": [{"type": "image", "id": "0" * 64}]}],
     "not a part of type image"),
    ([{"role": "system", "content": ask(picture())[0]["content"]}, *ask(picture())],
     "no images in messages of the role system"),
    ([{"role": "user", "content": "See <|image_pad|> here"}], "stands for an image"),
    (ask(picture(), text="<|video_pad|>"), "stands for an image"),
    (ask(*[picture()] * 101), "100 images at most"),
]  # fmt: skip


def test_bad_image_is_refused_in_one_sentence(sees: GatewayHarness) -> None:
    for messages, words in BAD:
        with pytest.raises(openai.BadRequestError, match=words):
            sees.ask(messages=messages)
    assert sees.ask(messages=ask(picture())).choices[0].message.content == "In the garden."


def test_links_of_the_other_dialects_are_refused(sees: GatewayHarness) -> None:
    block: Any = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
    with pytest.raises(anthropic.BadRequestError, match=r"messages\.0\.content\.0: .*downloads no"):
        sees.message(messages=[{"role": "user", "content": [block]}])
    block = {"type": "image", "source": {"type": "file", "file_id": "file_1"}}
    with pytest.raises(anthropic.BadRequestError, match=r"source: the image itself"):
        sees.message(messages=[{"role": "user", "content": [block]}])
    part: Any = {"type": "input_image", "file_id": "file_1", "detail": "auto"}
    with pytest.raises(openai.BadRequestError, match=r"input\.0\.content\.0: the image has no url"):
        sees.respond(input=[{"role": "user", "content": [part]}])


def test_image_of_more_tokens_than_the_context_is_refused(chat: ChatFormat, tmp_path: Path) -> None:
    harness = GatewayHarness(chat, max_context=50, images=RunImages(chat, tmp_path, 50))
    try:
        with pytest.raises(openai.BadRequestError, match=r"max_context is 50"):
            harness.ask(messages=ask(picture(640, 480)))
        assert not list(tmp_path.glob("images/inputs/*"))
    finally:
        harness.close()


def test_inputs_are_made_again_when_they_are_gone(sees: GatewayHarness, tmp_path: Path) -> None:
    assert sees.policy.chat.vision is not None
    sees.ask(messages=ask(picture()))
    before = Path(sees.policy.asked[-1].images[0].file).read_bytes()
    ImageStore(tmp_path).drop_inputs(sees.policy.chat.vision.digest)
    assert not list(tmp_path.glob("images/inputs/*"))
    sees.ask(messages=ask(picture()))
    (image,) = sees.policy.asked[-1].images
    assert Path(image.file).read_bytes() == before
    Path(image.file).unlink()
    branch = sees.session.recording.branches()[-1]
    assert sees.session.images is not None
    assert asyncio.run(sees.session.images.inputs(branch)) == [image]
    assert Path(image.file).read_bytes() == before
    next(tmp_path.glob("images/*.png")).unlink()
    Path(image.file).unlink()
    with pytest.raises(StoreError, match="has no image"):
        asyncio.run(RunImages(sees.policy.chat, tmp_path, 3_000).inputs(branch))


def test_model_without_image_processor_is_refused(folders: Callable[[str], Path]) -> None:
    folder = folders("Qwen2.5-VL")
    (folder / "preprocessor_config.json").rename(folder / "other.json")
    with pytest.raises(ModelError, match=r"no preprocessor_config\.json"):
        ChatFormat(folder)
