"""Images of requests: their data is stored, and the messages keep their ids.

Each dialect writes images in its own form; the converters make OpenAI's form of chat completions of
them (`image_url`). Only images that are in the request are taken: nothing is downloaded.
"""

import asyncio
import binascii
import re
from typing import Any

from engine.policy.base import MOST_IMAGES
from engine.protocol.problems import RolloutError
from engine.rollout.gateway.sessions import RemoteSession, Session
from engine.storage.run_folder.images import MOST_BYTES

DATA_URL = re.compile(r"data:[\w/.+-]*;base64,", re.ASCII)
TEXT = ("text", "refusal")
NOT_READ = "the model reads text only, and no image, audio or file"
Message = dict[str, Any]


async def without_data(session: Session | RemoteSession, messages: list[Message]) -> list[Message]:
    """Messages of a request with the ids of their images in place of the data, which is stored.
    Raises RolloutError for content that the model cannot read."""
    places = [n for n, message in enumerate(messages) if _has_other_parts(message)]
    if not places:
        return messages
    if isinstance(session, RemoteSession) or session.images is None or not session.reads_images:
        raise _refused(_place(messages[places[0]], places[0]), NOT_READ)
    findings = await session.chat.described()
    count, found = 0, list(messages)
    for place in places:
        message = messages[place]
        parts = []
        for number, part in enumerate(message["content"]):
            where = _where(part, place, number)
            if part.get("type") not in TEXT:
                count += 1
                _check(message, where, findings.images, findings.tool_images, count)
                content = await asyncio.to_thread(_content, part, where)
                part = {"type": "image", "id": await session.images.add(content)}
            parts.append(part)
        found[place] = {**message, "content": parts}
    return found


def image_part(url: Any, at: str) -> dict[str, Any]:
    """Part of a chat message with the image at `url`, a data URL. `at`: field of the request, for
    error messages."""
    return {"type": "image_url", "image_url": {"url": url}, "at": at}


def _place(message: Message, place: int) -> str:
    """Field of the first part of a message that is not text."""
    parts = enumerate(message["content"])
    number, part = next((n, part) for n, part in parts if part.get("type") not in TEXT)
    return _where(part, place, number)


def _where(part: dict[str, Any], place: int, number: int) -> str:
    """Field of part `number` of message `place`, by the dialect of the request."""
    at = part.get("at")
    return at[:100] if isinstance(at, str) else f"messages.{place}.content.{number}"


def _has_other_parts(message: Message) -> bool:
    content = message.get("content")
    return isinstance(content, list) and any(
        isinstance(part, dict) and part.get("type") not in TEXT for part in content
    )


def _check(message: Message, where: str, images: bool, tool_images: bool, count: int) -> None:
    """Raise RolloutError if the chat template does not show an image in this message, or if it is
    one too many."""
    role = message.get("role")
    if count > MOST_IMAGES:
        raise _refused(where, f"a request can have {MOST_IMAGES} images at most")
    if not images or role in ("system", "developer", "assistant"):
        raise _refused(where, f"the model reads no images in messages of the role {role}")
    if role in ("tool", "function") and not tool_images:
        raise _refused(where, "the model's chat template leaves out images in tool results")


def _content(part: dict[str, Any], where: str) -> bytes:
    """Image file in a part of a message."""
    if part.get("type") != "image_url":
        raise _refused(where, f"the model reads text and images, not a part of type {_kind(part)}")
    given = part.get("image_url")
    url = given.get("url") if isinstance(given, dict) else given
    if not isinstance(url, str):
        raise _refused(where, "the image has no url")
    head = DATA_URL.match(url)
    if head is None:
        raise _refused(
            where,
            "Atelier downloads no images; send the image itself, as a data URL "
            "(data:image/png;base64,…)",
        )
    if (len(url) - head.end()) * 3 // 4 > MOST_BYTES + 2:
        raise _refused(where, f"the image has more than {MOST_BYTES // 2**20} MB")
    try:
        return binascii.a2b_base64(url[head.end() :], strict_mode=True)
    except ValueError as error:
        raise _refused(where, f"the image is not valid base64: {error}") from error


def _kind(part: dict[str, Any]) -> str:
    return str(part.get("type"))[:60]


def _refused(field: str, why: str) -> RolloutError:
    return RolloutError.of("gateway.refused_field", f"{field}: {why}.", where=field)
