"""Bundled font families and the type scale. Sizes are in pixels, so that all platforms agree."""

from dataclasses import dataclass

from PySide6.QtGui import QFont, QFontDatabase

from studio.runtime.paths import resource

SANS = "Inter"
MONO = "JetBrains Mono"
_FILES = {
    SANS: ("Inter-Regular.otf", "Inter-Medium.otf", "Inter-SemiBold.otf"),
    MONO: ("JetBrainsMono-Regular.ttf", "JetBrainsMono-Medium.ttf", "JetBrainsMono-SemiBold.ttf"),
}


class FontError(RuntimeError):
    """Bundled font that did not load, or loaded under another name."""


@dataclass(frozen=True)
class TypeStyle:
    """Style of the type scale: family, size and line height in pixels, weight."""

    family: str
    size_px: int
    line_px: int
    weight: int


TYPE_SCALE = {
    "display": TypeStyle(SANS, 22, 28, 600),
    "title": TypeStyle(SANS, 16, 24, 600),
    "heading": TypeStyle(SANS, 14, 20, 600),
    "body": TypeStyle(SANS, 13, 20, 400),
    "label": TypeStyle(SANS, 12, 16, 500),
    "caption": TypeStyle(SANS, 11, 16, 400),
    "mono": TypeStyle(MONO, 12, 18, 400),
    "mono-small": TypeStyle(MONO, 11, 16, 400),
}


def load_fonts() -> None:
    """Register the bundled fonts. Raises FontError if one is missing or misnamed."""
    for family, files in _FILES.items():
        for file in files:
            number = QFontDatabase.addApplicationFont(str(resource("fonts", file)))
            names = QFontDatabase.applicationFontFamilies(number) if number >= 0 else []
            if not any(name == family or name.startswith(f"{family} ") for name in names):
                raise FontError(f"{file} did not load as {family!r} (got {names})")
    for family in _FILES:
        if family not in QFontDatabase.families():
            raise FontError(f"no family named {family!r} after loading the shipped fonts")


def make_font(style: str, weight: int | None = None) -> QFont:
    """Return a font of the type scale; `weight` (400, 500, 600) overrides that of the style."""
    kind = TYPE_SCALE[style]
    font = QFont(kind.family)
    font.setPixelSize(kind.size_px)
    font.setWeight(QFont.Weight(weight or kind.weight))
    font.setHintingPreference(QFont.HintingPreference.PreferNoHinting)
    font.setFeature(QFont.Tag("tnum"), 1)
    if kind.family == MONO:
        font.setFeature(QFont.Tag("calt"), 0)
        font.setStyleHint(QFont.StyleHint.Monospace)
    return font
