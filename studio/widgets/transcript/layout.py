"""Layout and painting of one row of a transcript at a given width. Rows are laid out when
visible."""

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field

from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QPainter, QTextCharFormat, QTextLayout, QTextOption

from studio.text import formatting
from studio.theme.theme import theme
from studio.widgets.painting import paint
from studio.widgets.text.phrase import cursor_x
from studio.widgets.transcript.items import (
    ImageRef,
    Item,
    Message,
    Note,
    Outcome,
    Token,
    ToolCall,
    join_tokens,
    plain,
    shown_part,
    tint_of,
)
from studio.widgets.transcript.lines import line_height, paint_line
from studio.widgets.transcript.pictures import Pictures
from studio.widgets.transcript.thumbnails import Spot, spots_of, with_images

RESULT_LINES = 6
MORE_LINES = 200
MESSAGE_LINES = 400
CHUNK_CHARS, ARGUMENT_CHARS, RESULT_CHARS = 30_000, 2_000, 1_200
"""Characters laid out at first; each "more" adds a chunk, about 30 ms of work."""
REASONING_INDENT = 14.0
"""Indentation of reasoning behind its line, in pixels."""
_ROLE_ICONS = {"system": "message-square-text", "user": "user-round", "assistant": "bot"}
_LINE = {"body": 20.0, "mono": 18.0, "label": 18.0}


@dataclass
class Block:
    """Text laid out in a row: position, height, and tokens with their character offsets."""

    layout: QTextLayout
    at: QPointF
    height: float
    tokens: Sequence[Token] = ()
    starts: list[int] = field(default_factory=list)

    def token_at(self, point: QPointF) -> int:
        """Index of the token at a point of the row, or -1."""
        inside = point - self.at
        for number in range(self.layout.lineCount()):
            line = self.layout.lineAt(number)
            if line.y() - 2 <= inside.y() < line.y() + line.height() + 2:
                if not 0 <= inside.x() <= line.naturalTextWidth():
                    return -1
                return bisect.bisect_right(self.starts, line.xToCursor(inside.x())) - 1
        return -1

    def rects_of(self, index: int) -> list[QRectF]:
        """Rectangles of the token at an index, one per line, in coordinates of the row."""
        start = self.starts[index]
        end = self.starts[index + 1] if index + 1 < len(self.starts) else len(self.layout.text())
        return self.rects_between(start, end)

    def rects_between(self, start: int, end: int) -> list[QRectF]:
        """Rectangles of a range of characters, one per line, in coordinates of the row."""
        result = []
        for number in range(self.layout.lineCount()):
            line = self.layout.lineAt(number)
            first, last = line.textStart(), line.textStart() + line.textLength()
            if last <= start or first >= end:
                continue
            left, right = cursor_x(line, max(start, first)), cursor_x(line, min(end, last))
            rect = QRectF(left, line.y() - 1, right - left, line.height() + 2)
            result.append(rect.translated(self.at))
        return result


@dataclass
class Row:
    """Item laid out: height, text blocks, frame, and positions of the header of the reasoning and
    of the "more" link."""

    item: Item
    height: float = 0.0
    blocks: list[Block] = field(default_factory=list)
    frame: QRectF | None = None
    separator_y: float = 0.0
    fold: QRectF | None = None
    fold_words: str = ""
    unfolded: bool = False
    more: QRectF | None = None
    more_words: str = ""
    spots: list[Spot] = field(default_factory=list)
    """Places of the thumbnails."""
    chips_y: float = 0.0


@dataclass(frozen=True)
class Looks:
    """Display settings of all rows: width, tint and end of its scale, indentation in pixels; the
    images, which are marks in the text without them."""

    width: float
    tint: str = "advantage"
    largest: float = 1.0
    indent: float = 22.0
    pictures: Pictures | None = None


def chars_at(shown: int, first: int) -> int:
    """Return how many characters of a long text to lay out for `shown` unfolded lines; `first` if
    it is folded (0)."""
    return first if shown <= 0 else CHUNK_CHARS * (1 + shown // MORE_LINES)


def estimate(item: Item, width: float) -> float:
    """Estimate the height in pixels of a row that was not laid out, at `width` pixels."""
    if isinstance(item, (Note, Outcome)):
        return line_height(item)
    count = sum(len(t.text) for t in item.tokens) or len(getattr(item, "text", ""))
    if isinstance(item, ToolCall):
        return 74.0 + 18.0 * min(RESULT_LINES, len(item.result) // 80 + 1)
    head = 66.0 if item.reasoning or item.reasoning_tokens else 40.0
    return head + 20.0 * max(1, count * 7 / max(80.0, width))


def lay_out_row(item: Item, looks: Looks, shown_lines: int, reasoning: bool = False) -> Row:
    """Lay out an item; `shown_lines` is the number of lines unfolded of a long text, `reasoning`
    unfolds the reasoning of a message, `looks` has width and token colours."""
    row = Row(item, unfolded=reasoning)
    if isinstance(item, Message):
        _message(row, item, looks, shown_lines)
    elif isinstance(item, ToolCall):
        _tool(row, item, looks, shown_lines)
    else:
        row.height = line_height(item)
    return row


def _message(row: Row, item: Message, looks: Looks, shown: int) -> None:
    y = 30.0 if item.title else 8.0
    left = looks.indent
    y, left_out = _reasoning(row, item, looks, shown, y)
    if item.tokens or item.text:
        padding = 10.0 if item.role == "user" else 0.0
        width = looks.width - left - 2 * padding
        if item.tokens:
            block = _token_block(item.tokens, "body", width, looks)
        else:
            most = (MESSAGE_LINES + shown, chars_at(shown, CHUNK_CHARS))
            words, hidden = shown_part(with_images(item.text, item.images, looks.pictures), *most)
            left_out += hidden
            block = _block(words, "body", width, "muted" if item.role == "system" else "text")
        block.at = QPointF(left + padding, y + padding)
        _add_spots(row, block, item.images, looks, width)
        row.blocks.append(block)
        if padding:
            row.frame = QRectF(left, y, looks.width - left, block.height + 2 * padding)
        y += block.height + 2 * padding
    y = _more(row, y, left, left_out)
    row.height = y + 10.0


def _reasoning(row: Row, item: Message, looks: Looks, shown: int, y: float) -> tuple[float, int]:
    """Lay out the reasoning of a message below its header, or an empty block if it is folded;
    returns the position below it, and the number of lines left out."""
    if not (item.reasoning or item.reasoning_tokens):
        return y, 0
    left, left_out = looks.indent, 0
    count = len(item.reasoning_tokens)
    row.fold_words = (
        f"Reasoning \u00b7 {formatting.plural(count, 'token')}" if count else "Reasoning"
    )
    if any(token.forced for token in item.reasoning_tokens):
        row.fold_words = _with_note(row.fold_words, looks.width - left - 26)
    row.fold = QRectF(left - 2, y, paint.text_width(row.fold_words, "label", 500) + 26, 24)
    y += 24.0
    width = looks.width - left - REASONING_INDENT
    if not row.unfolded:
        block = _block("", "body", width, "muted")
        block.height = 0.0
    elif item.reasoning_tokens:
        block = _token_block(item.reasoning_tokens, "body", width, looks, "muted")
    else:
        words, left_out = shown_part(
            item.reasoning, MESSAGE_LINES + shown, chars_at(shown, CHUNK_CHARS)
        )
        block = _block(words, "body", width, "muted")
    block.at = QPointF(left + REASONING_INDENT, y)
    row.blocks.append(block)
    return y + block.height + (8.0 if row.unfolded else 2.0), left_out


def _with_note(words: str, width: float) -> str:
    """Header of reasoning that the thinking budget closed, within `width` pixels if possible."""
    notes = (" \u00b7 closed by the thinking budget", " \u00b7 closed by budget", " \u00b7 closed")
    texts = [words + note for note in notes]
    fitting = (text for text in texts if paint.text_width(text, "label", 500) <= width)
    return next(fitting, texts[-1])


def _tool(row: Row, item: ToolCall, looks: Looks, shown: int) -> None:
    left, width = looks.indent, looks.width - looks.indent
    inner = width - 24
    y = 8.0
    y += 22.0  # name and facts
    kept = 0
    if item.tokens:
        arguments = _token_block(item.tokens, "mono", inner, looks)
    else:
        text, kept = shown_part(
            item.arguments, MESSAGE_LINES + shown, chars_at(shown, ARGUMENT_CHARS)
        )
        arguments = _block(text, "mono", inner, "muted")
    if arguments.layout.text():
        arguments.at = QPointF(left + 12, y)
        row.blocks.append(arguments)
        y += arguments.height
    y += 7.0
    if item.result:
        row.separator_y = y
        y += 7.0
        most = (RESULT_LINES + shown, chars_at(shown, RESULT_CHARS))
        words, left_out = shown_part(with_images(item.result, item.images, looks.pictures), *most)
        tone = {"error": "bad", "answer": "text"}.get(item.state, "muted")
        block = _block(words, "label", inner, tone)
        block.at = QPointF(left + 12, y)
        _add_spots(row, block, item.images, looks, inner)
        row.blocks.append(block)
        y += block.height
        y = _more(row, y, left + 12, left_out + kept)
        y += 8.0
    elif kept:
        y = _more(row, y, left + 12, kept) + 8.0
    if item.sources:
        row.chips_y = y
        y += 28.0
    row.frame = QRectF(left, 2.0, width, y - 2.0)
    row.height = y + 8.0


def _add_spots(
    row: Row, block: Block, images: Sequence[ImageRef], looks: Looks, width: float
) -> None:
    """Make room for the images in a block of text, whose position is set."""
    if images and looks.pictures is not None:
        spots, more = spots_of(block.layout, images, looks.pictures, width)
        block.height += more
        row.spots += [Spot(spot.image, spot.rect.translated(block.at)) for spot in spots]


def _more(row: Row, y: float, left: float, left_out: int) -> float:
    if left_out <= 0:
        return y
    row.more_words = f"{formatting.count(left_out)} more {'line' if left_out == 1 else 'lines'}"
    row.more = QRectF(left, y, paint.text_width(row.more_words, "label", 500) + 8, 20)
    return y + 20.0


def _block(words: str, style: str, width: float, tone: str) -> Block:
    layout = new_layout(words, style)
    form = QTextCharFormat()
    form.setForeground(theme().color(tone))
    layout.setFormats([char_range(0, len(words), form)])
    return Block(layout, QPointF(), run_layout(layout, style, width))


def _token_block(
    tokens: Sequence[Token], style: str, width: float, looks: Looks, tone: str = "text"
) -> Block:
    words, starts = join_tokens(tokens)
    layout = new_layout(words, style)
    formats, index = [], 0
    while index < len(tokens):  # neighbours with the same format share a range
        key = _format_key(tokens[index], looks)
        end = index + 1
        while end < len(tokens) and key == _format_key(tokens[end], looks):
            end += 1
        stop = starts[end] if end < len(tokens) else len(words)
        form = QTextCharFormat()
        form.setForeground(theme().color("text" if key[0] else tone))
        if key[0] is not None:
            form.setBackground(theme().color(key[0]))
        if key[1]:
            form.setUnderlineStyle(QTextCharFormat.UnderlineStyle.DotLine)
            form.setUnderlineColor(theme().color(key[1]))
        formats.append(char_range(starts[index], stop - starts[index], form))
        index = end
    layout.setFormats(formats)
    return Block(layout, QPointF(), run_layout(layout, style, width), tokens, starts)


def _format_key(token: Token, looks: Looks) -> tuple[str | None, str]:
    """Colours of a token: background (None: none), and dotted underline (empty: none)."""
    line = "warn" if token.clipped else "faint" if token.forced else ""
    return tint_of(token, looks.tint, looks.largest), line


def new_layout(words: str, style: str) -> QTextLayout:
    """Return an unwrapped layout of a text in a style of the type scale."""
    layout = QTextLayout(words.replace("\n", "\u2028"), theme().font(style, 400))
    option = QTextOption()
    option.setWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
    layout.setTextOption(option)
    layout.setCacheEnabled(True)
    return layout


def char_range(start: int, length: int, form: QTextCharFormat) -> QTextLayout.FormatRange:
    """Return a range of characters with a text format."""
    result = QTextLayout.FormatRange()
    result.start, result.length, result.format = start, length, form  # type: ignore[misc]
    return result


def run_layout(layout: QTextLayout, style: str, width: float) -> float:
    """Wrap a layout at `width` pixels; return its height."""
    pitch, y = _LINE[style], 0.0
    layout.beginLayout()
    while (line := layout.createLine()).isValid():
        line.setLineWidth(max(20.0, width))
        line.setPosition(QPointF(0, y + (pitch - line.height()) / 2))
        y += pitch
    layout.endLayout()
    return y


def paint_row(painter: QPainter, row: Row, looks: Looks, focused: bool) -> None:
    """Draw a row with its top left corner at the painter's origin; `focused` adds an accent
    edge."""
    item = row.item
    if isinstance(item, (Note, Outcome)):
        paint_line(painter, item, looks.indent, looks.width)
        return
    if isinstance(item, ToolCall) and row.frame is not None:
        _paint_tool_frame(painter, row, item, row.frame)
    elif isinstance(item, Message):
        _paint_message_head(painter, row, item, looks)
    if focused:
        painter.fillRect(QRectF(-10, 2, 3, row.height - 6), theme().color("accent"))
    if row.fold is not None:
        _paint_reasoning(painter, row, row.fold)
    for block in row.blocks:
        block.layout.draw(painter, block.at)
    if row.more is not None:
        paint.text(painter, row.more, row.more_words, "accent", "label", 500, elide=False)


def _paint_message_head(painter: QPainter, row: Row, item: Message, looks: Looks) -> None:
    if row.frame is not None:
        paint.box(painter, row.frame, "chip", None, 6)
    if not item.title:
        return
    icon = _ROLE_ICONS.get(item.role, "bot")
    paint.icon(painter, QPointF(0, 9), icon, "muted", 14)
    line = QRectF(22, 6, looks.width - 22, 20)
    x = line.left() + paint.text(painter, line, item.title, "text", "body", 600) + 8
    text = item.facts + (" \u00b7 advantage " if item.advantage is not None and item.facts else "")
    rest = QRectF(x, 6, looks.width - x, 20)
    x += paint.text(painter, rest, text, "muted", "label", 400)
    if item.advantage is not None:
        rest = QRectF(x, 6, looks.width - x, 20)
        tone = "accent" if item.advantage > 0 else "bad" if item.advantage < 0 else "faint"
        paint.text(painter, rest, formatting.signed(item.advantage), tone, "label", 600)


def _paint_reasoning(painter: QPainter, row: Row, fold: QRectF) -> None:
    """Draw the header of the reasoning, and the line at its left if it is unfolded."""
    icon = "chevron-down" if row.unfolded else "chevron-right"
    paint.icon(painter, QPointF(fold.left(), fold.top() + 5), icon, "muted", 14)
    words = fold.adjusted(20, 0, 0, 0)
    paint.text(painter, words, row.fold_words, "muted", "label", 500, elide=False)
    if row.unfolded:
        block = row.blocks[0]
        line = QRectF(fold.left() + 8, fold.bottom() + 1, 1, block.height - 2)
        painter.fillRect(line, theme().color("border-strong"))


def _paint_tool_frame(painter: QPainter, row: Row, item: ToolCall, frame: QRectF) -> None:
    edge = {"error": "bad-line", "answer": "accent-line"}.get(item.state, "border")
    tone = {"error": "bad", "answer": "accent"}.get(item.state, "muted")
    icon = {"error": "circle-alert", "answer": "corner-down-left"}.get(item.state, item.icon)
    paint.box(painter, frame, "surface", edge, 6)
    paint.icon(painter, QPointF(frame.left() + 11, 12), icon, tone, 14)
    line = QRectF(frame.left() + 32, 9, frame.width() - 44, 20)
    facts = paint.text(painter, line, item.facts, "faint", "caption", align=paint.RIGHT)
    room = line.adjusted(0, 0, -facts - 8, 0)
    used = paint.text(painter, room, item.name, "text", "mono", 500)
    if item.repeats > 1:
        box = QRectF(line.left() + used + 8, 11, 28, 16)
        paint.box(painter, box, "chip", None, 4)
        words = f"\u00d7 {item.repeats}"
        paint.text(painter, box, words, "muted", "caption", 500, paint.CENTER, elide=False)
    if row.separator_y:
        painter.fillRect(
            QRectF(frame.left() + 1, row.separator_y, frame.width() - 2, 1), theme().color("border")
        )
    x = frame.left() + 12
    for source in item.sources:
        words = plain(source)
        width = min(frame.right() - 12 - x, paint.text_width(words, "mono-small") + 14)
        if width < 30:
            break
        box = QRectF(x, row.chips_y, width, 20)
        paint.box(painter, box, "chip", None, 4)
        inside = box.adjusted(7, 0, -5, 0)
        paint.text(painter, inside, words, "muted", "mono-small")
        x += width + 6
