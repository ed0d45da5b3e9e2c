"""Messages and tools of a chat request, validated field by field.

A message stays the dictionary that was sent, including unknown fields, which the templates of some
models use.
"""

from typing import Annotated, Any, Literal, NotRequired

from pydantic import (
    ConfigDict,
    Discriminator,
    Field,
    GetPydanticSchema,
    StringConstraints,
    Tag,
    ValidationError,
    with_config,
)
from typing_extensions import TypedDict

MOST_PARTS = 10_000
MOST_CALLS = 1_000
OPEN = ConfigDict(extra="allow", allow_inf_nan=False)
Name = Annotated[str, StringConstraints(max_length=512)]
Role = Literal["system", "developer", "user", "assistant", "tool", "function"]


def form(value: Any) -> str:
    """Type of a message's content: `(none)`, `(text)`, `(parts)` for a list or `(object)` for a
    dict. It is the tag by which pydantic selects a validator."""
    match value:
        case None:
            return "(none)"
        case list():
            return "(parts)"
        case dict():
            return "(object)"
    return "(text)"


@with_config(OPEN)
class Part(TypedDict):
    """Part of a message's content; anything but text is refused later, with a message."""

    type: Name
    text: NotRequired[str]


Text = Annotated[str, Tag("(text)")]
Nothing = Annotated[None, Tag("(none)")]
Content = Annotated[
    Text
    | Nothing
    | Annotated[list[Part], Field(fail_fast=True, max_length=MOST_PARTS), Tag("(parts)")],
    Discriminator(form),
]
Arguments = Annotated[
    Text | Nothing | Annotated[dict[str, Any], Tag("(object)")], Discriminator(form)
]


@with_config(OPEN)
class Function(TypedDict):
    """Function of a tool call."""

    name: Name
    arguments: NotRequired[Arguments]


@with_config(OPEN)
class ToolCall(TypedDict):
    id: NotRequired[Name | None]
    type: NotRequired[Name | None]
    function: Function


Calls = Annotated[list[ToolCall], Field(fail_fast=True, max_length=MOST_CALLS)]


@with_config(OPEN)
class ChatMessageFields(TypedDict):
    role: Role
    content: NotRequired[Content]
    name: NotRequired[Name | None]
    tool_call_id: NotRequired[Name | None]
    tool_calls: NotRequired[Calls | None]


@with_config(OPEN)
class ToolFunction(TypedDict):
    """Function tool that a request offers the model."""

    name: Name
    description: NotRequired[str | None]
    parameters: NotRequired[dict[str, Any] | None]


@with_config(OPEN)
class ToolFields(TypedDict):
    type: NotRequired[Name]
    function: ToolFunction


@with_config(OPEN)
class ItemFields(TypedDict):
    """Item of a Responses request: reasoning, a message, a function call or its output."""

    type: NotRequired[Name]
    role: NotRequired[Role]
    content: NotRequired[Content]
    call_id: NotRequired[Name]
    name: NotRequired[Name]
    arguments: NotRequired[str]
    output: NotRequired[Content]
    summary: NotRequired[list[dict[str, Any]] | None]


@with_config(OPEN)
class FlatToolFields(TypedDict):
    """Tool in the format of the Responses API."""

    type: Name
    name: NotRequired[Name]
    description: NotRequired[str | None]
    parameters: NotRequired[dict[str, Any] | None]


def _checked(fields: type) -> GetPydanticSchema:
    return GetPydanticSchema(lambda source, handler: handler.generate_schema(fields))


ChatMessage = Annotated[dict[str, Any], _checked(ChatMessageFields)]
Tool = Annotated[dict[str, Any], _checked(ToolFields)]
Item = Annotated[dict[str, Any], _checked(ItemFields)]
FlatTool = Annotated[dict[str, Any], _checked(FlatToolFields)]


def first_invalid_field(error: ValidationError) -> str:
    """First invalid field, and its error: `messages.0.name: Input should be a valid string`."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    names = [str(part) for part in first["loc"] if not str(part).startswith("(")]
    return f"{'.'.join(names) or 'body'}: {first['msg']}"
