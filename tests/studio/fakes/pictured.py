"""Trajectories with images: a chart and a photograph in the question, a screenshot in a tool
result."""

import hashlib
import io

from PIL import Image, ImageDraw

from engine.protocol.records.conversations import IMAGE
from engine.protocol.records.runs import Trajectory


def _saved(image: Image.Image, form: str) -> bytes:
    file = io.BytesIO()
    image.save(file, form)
    return file.getvalue()


def _chart() -> bytes:
    image = Image.new("RGB", (640, 480), "#FFFFFF")
    draw = ImageDraw.Draw(image)
    for place, height in enumerate((120, 210, 160, 300, 260, 340)):
        x = 80 + place * 88
        draw.rectangle((x, 400 - height, x + 52, 400), fill="#2B72D4" if place % 2 else "#1F9A86")
    draw.line((60, 400, 620, 400), fill="#3E4E52", width=3)
    draw.line((60, 40, 60, 400), fill="#3E4E52", width=3)
    return _saved(image, "PNG")


def _photograph() -> bytes:
    image = Image.linear_gradient("L").resize((900, 1200)).convert("RGB")
    tinted = Image.blend(image, Image.new("RGB", image.size, "#7A5B00"), 0.35)
    ImageDraw.Draw(tinted).ellipse((250, 300, 650, 700), fill="#F2F4F1")
    return _saved(tinted, "JPEG")


def _screenshot() -> bytes:
    image = Image.new("RGB", (1600, 500), "#F2F4F1")
    draw = ImageDraw.Draw(image)
    for row in range(7):
        draw.rectangle((40, 40 + row * 60, 1560, 80 + row * 60), fill="#DDF0EB", outline="#0A7166")
    return _saved(image, "PNG")


def made_images() -> dict[str, bytes]:
    """Image files by id; the last one is damaged."""
    files = [_chart(), _photograph(), _screenshot(), _chart()[:300]]
    return {hashlib.sha256(data).hexdigest(): data for data in files}


def with_images(record: Trajectory, images: list[str]) -> Trajectory:
    """Return a simulated trajectory whose question and first tool result show `images`."""
    chart, photograph, screenshot, damaged = images
    messages, asked, seen = [], False, False
    for message in record.messages:
        if message.role == "user" and not asked:
            asked = True
            content = f"{IMAGE}{IMAGE}\n{message.content}\nCompare with {IMAGE} and this: {IMAGE}"
            found = [chart, photograph, damaged, "0" * 64]
            message = message.model_copy(update={"content": content, "images": found})
        elif message.role == "tool" and not seen:
            seen = True
            content = f"The page as it is shown now: {IMAGE}"
            message = message.model_copy(update={"content": content, "images": [screenshot]})
        messages.append(message)
    return record.model_copy(update={"messages": messages})
