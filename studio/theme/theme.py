"""Theme: palette, stylesheet, fonts and tinted icons from tokens, switched at run time.

`Theme.install(app)` is called once by the composition root. Widgets then call `theme()`, which is
to colours what `QApplication.palette()` is; they repaint on `changed` or on Qt's own PaletteChange.
This is the only module that calls setStyleSheet."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QDir, QObject, QSize, Qt, QTemporaryDir, Signal, Slot
from PySide6.QtGui import QColor, QFont, QIcon, QPalette, QPixmap
from PySide6.QtWidgets import QApplication

from studio.runtime.paths import resource
from studio.theme.fonts import load_fonts, make_font
from studio.theme.icons import IconCache, fill_placeholders, tinted_svg
from studio.theme.tokens import Tokens, load_tokens

MODES = ("system", "dark", "light")
# Icons drawn by the stylesheet (arrows and check marks of stock controls): name, token.
_SHEET_ICONS = {
    "chevron-down": ("muted", "ghost"),
    "chevron-up": ("muted", "ghost"),
    "chevrons-up-down": ("muted", "ghost"),
    "check": ("on-accent", "ghost"),
    "minus": ("on-accent", "ghost"),
    "chevron-right": ("muted", "ghost"),
}


class Theme(QObject):
    """Colours, fonts and icons of the studio, with a dark and a light mode."""

    changed = Signal()

    def __init__(self, app: QApplication) -> None:
        super().__init__(app)
        self._app = app
        self._mode = "system"
        self._tokens = load_tokens("dark")
        self._colors: dict[str, QColor] = {}
        self._fonts: dict[tuple[str, int | None], QFont] = {}
        self._icons = IconCache()
        self._sheet_icons = QTemporaryDir()
        self.reduced_motion = False

    @classmethod
    def install(cls, app: QApplication, mode: str = "system") -> Theme:
        """Load fonts and style once, apply `mode`, and make the theme available to `theme()`."""
        global _installed
        installed = next(iter(app.findChildren(cls)), None)
        if installed is None:
            load_fonts()
            installed = cls(app)
            app.setStyle("Fusion")
            app.setFont(make_font("body"))
            app.styleHints().colorSchemeChanged.connect(installed._system_scheme_changed)
        _installed = installed
        installed.set_mode(mode)
        return installed

    @property
    def mode(self) -> str:
        """Selected mode: system, dark or light."""
        return self._mode

    @property
    def scheme(self) -> str:
        """Effective scheme: dark or light."""
        return self._tokens.scheme

    @property
    def tokens(self) -> Tokens:
        """Colours by token name, as #rrggbb."""
        return self._tokens

    def set_mode(self, mode: str) -> None:
        """Set the mode: system, dark or light. Raises ValueError for any other value."""
        if mode not in MODES:
            raise ValueError(f"theme mode is {mode!r}, expected one of {', '.join(MODES)}")
        self._mode = mode
        self._apply(mode if mode != "system" else _system_scheme(self._app))

    def color(self, token: str, alpha: float = 1.0) -> QColor:
        """Colour of a token. Alpha is for the chart fills listed in tokens.md only."""
        color = self._colors.get(token)
        if color is None:
            color = self._colors[token] = QColor(self._tokens[token])
        if alpha >= 1.0:
            return color
        faded = QColor(color)
        faded.setAlphaF(alpha)
        return faded

    def font(self, style: str, weight: int | None = None) -> QFont:
        """Font of the type scale: display title heading body label caption mono mono-small;
        `weight` (400, 500, 600) overrides that of the style."""
        key = (style, weight)
        if key not in self._fonts:
            self._fonts[key] = make_font(style, weight)
        return self._fonts[key]

    def pixmap(self, name: str, token: str, size_px: int = 16, ratio: float = 0.0) -> QPixmap:
        """Lucide icon in the colour of a token; `ratio` is the device pixel ratio (0: the
        screen's)."""
        ratio = ratio or self._app.devicePixelRatio()
        return self._icons.icon(name, self._tokens[token], size_px, ratio)

    def drawing(self, path: str, size: QSize, ratio: float = 0.0) -> QPixmap:
        """Drawing of resources/icons with token placeholders: "mark", "samples/2048". `ratio` is
        the device pixel ratio (0: the screen's)."""
        ratio = ratio or self._app.devicePixelRatio()
        return self._icons.drawing(path, self._tokens, size, ratio)

    def icon(self, name: str, token: str = "muted", size_px: int = 16) -> QIcon:
        """Icon for menus and stock widgets, with a disabled variant."""
        icon = QIcon(self.pixmap(name, token, size_px))
        icon.addPixmap(self.pixmap(name, "ghost", size_px), QIcon.Mode.Disabled)
        return icon

    def _apply(self, scheme: str) -> None:
        self._tokens = load_tokens(scheme)
        self._colors.clear()
        self._icons.clear()
        self._write_sheet_icons()
        self._app.setPalette(_palette(self.color))
        self._app.setStyleSheet(_stylesheet(self._tokens))
        self.changed.emit()

    def _write_sheet_icons(self) -> None:
        folder = QDir(self._sheet_icons.path())
        for name, tokens in _SHEET_ICONS.items():
            for face, token in zip(("", "-off"), tokens, strict=True):
                path = folder.filePath(f"{name}{face}-{self.scheme}.svg")
                with open(path, "w", encoding="utf-8") as file:
                    file.write(tinted_svg(name, self._tokens[token]))
        QDir.setSearchPaths("sheet", [folder.path()])

    @Slot()
    def _system_scheme_changed(self) -> None:
        if self._mode == "system":
            self._apply(_system_scheme(self._app))


_installed: Theme | None = None


def theme() -> Theme:
    """Installed theme. Raises RuntimeError before `Theme.install`."""
    if _installed is None:
        raise RuntimeError("call Theme.install(app) before creating a widget")
    return _installed


def _system_scheme(app: QApplication) -> str:
    light = app.styleHints().colorScheme() == Qt.ColorScheme.Light
    return "light" if light else "dark"


def _stylesheet(tokens: Tokens) -> str:
    template = resource("theme", "studio.qss").read_text(encoding="utf-8")
    return fill_placeholders(template.replace("${scheme}", tokens.scheme), tokens)


def _palette(color: Callable[[str], QColor]) -> QPalette:
    palette = QPalette()
    role = QPalette.ColorRole
    for which, token in {
        role.Window: "background",
        role.WindowText: "text",
        role.Base: "surface",
        role.AlternateBase: "surface",
        role.Text: "text",
        role.Button: "raised",
        role.ButtonText: "text",
        role.BrightText: "bad",
        role.ToolTipBase: "raised",
        role.ToolTipText: "text",
        role.PlaceholderText: "faint",
        role.Highlight: "selection",
        role.HighlightedText: "text",
        role.Accent: "accent",
        role.Link: "accent",
        role.LinkVisited: "accent",
        role.Light: "hover",
        role.Midlight: "hover",
        role.Mid: "border",
        role.Dark: "border-strong",
        role.Shadow: "border",
    }.items():
        palette.setColor(which, color(token))
    for which in (role.WindowText, role.Text, role.ButtonText):
        palette.setColor(QPalette.ColorGroup.Disabled, which, color("faint"))
    return palette
