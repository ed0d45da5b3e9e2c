"""Single-colour SVG icons and token-coloured drawings, tinted and cached per device pixel ratio."""

import re
from functools import cache

from PySide6.QtCore import QByteArray, QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPixmap
from PySide6.QtSvg import QSvgRenderer

from studio.runtime.paths import resource
from studio.theme.tokens import Tokens

_PLACEHOLDER = re.compile(r"\$\{([a-z0-9-]+)\}")
_STROKE_WIDTH = re.compile(r'stroke-width="[\d.]+"')
_BIG_ICON_PX = 20


def fill_placeholders(template: str, tokens: Tokens) -> str:
    """Replace every ${token} with its colour. Raises KeyError for an unknown token."""
    return _PLACEHOLDER.sub(lambda match: tokens[match[1]], template)


def tinted_svg(name: str, color: str, size_px: int = 16) -> str:
    """SVG text of an icon in one colour, with a stroke width for its size."""
    width = "1.6" if size_px >= _BIG_ICON_PX else "1.9"
    text = _source(name).replace("currentColor", color)
    return _STROKE_WIDTH.sub(f'stroke-width="{width}"', text)


class IconCache:
    """Pixmaps by (name, colour, size, ratio); cleared when the theme changes."""

    def __init__(self) -> None:
        self._pixmaps: dict[tuple[str, str, int, int, float], QPixmap] = {}

    def icon(self, name: str, color: str, size_px: int, ratio: float) -> QPixmap:
        """Return a Lucide icon in one colour; `ratio` is the device pixel ratio."""
        key = (name, color, size_px, size_px, ratio)
        if key not in self._pixmaps:
            svg = tinted_svg(name, color, size_px)
            self._pixmaps[key] = _render(svg, QSize(size_px, size_px), ratio)
        return self._pixmaps[key]

    def drawing(self, path: str, tokens: Tokens, size: QSize, ratio: float) -> QPixmap:
        """Return a drawing with ${token} placeholders replaced, for example "samples/2048"."""
        key = (path, tokens.scheme, size.width(), size.height(), ratio)
        if key not in self._pixmaps:
            self._pixmaps[key] = _render(fill_placeholders(_source(path), tokens), size, ratio)
        return self._pixmaps[key]

    def clear(self) -> None:
        """Clear the cache after a change of colours."""
        self._pixmaps.clear()


@cache
def _source(name: str) -> str:
    return resource("icons", f"{name}.svg").read_text(encoding="utf-8")


def _render(svg: str, size: QSize, ratio: float) -> QPixmap:
    pixmap = QPixmap(size * ratio)
    pixmap.setDevicePixelRatio(ratio)
    pixmap.fill(Qt.GlobalColor.transparent)
    painter = QPainter(pixmap)
    QSvgRenderer(QByteArray(svg.encode())).render(
        painter, QRectF(0, 0, size.width(), size.height())
    )
    painter.end()
    return pixmap
