"""Theme files: same tokens in both, sufficient contrast, and no unknown placeholder."""

import re
from pathlib import Path

import pytest
from PySide6.QtCore import QSize
from PySide6.QtGui import QFontInfo, QPalette
from PySide6.QtWidgets import QApplication, QLabel

from studio.runtime.paths import resource, resources_dir
from studio.theme.fonts import MONO, SANS, make_font
from studio.theme.theme import Theme, theme
from studio.theme.tokens import (
    THEMES,
    Tokens,
    advantage_token,
    contrast,
    load_tokens,
    parse_tokens,
    reward_token,
)

GROUNDS = ("background", "surface", "raised", "hover", "selection", "chip")
SPEAKERS = ("accent", "good", "warn", "bad", "info", "judge", "human")
STUDIO = Path(__file__).parents[3] / "studio"


@pytest.fixture(params=THEMES)
def tokens(request: pytest.FixtureRequest) -> Tokens:
    return load_tokens(request.param)


@pytest.fixture
def installed(qapp: QApplication) -> Theme:
    return Theme.install(qapp, "dark")


def test_both_themes_define_the_same_tokens() -> None:
    assert set(load_tokens("dark").colors) == set(load_tokens("light").colors)


@pytest.mark.parametrize("word", ["text", "muted", "faint"])
def test_text_contrast_on_every_background(tokens: Tokens, word: str) -> None:
    poor = {g: contrast(tokens[word], tokens[g]) for g in GROUNDS}
    assert min(poor.values()) >= 4.5, poor


@pytest.mark.parametrize("word", SPEAKERS)
def test_semantic_colors_contrast_on_backgrounds_and_tints(tokens: Tokens, word: str) -> None:
    grounds = [*GROUNDS, f"{word}-soft"]
    poor = {g: contrast(tokens[word], tokens[g]) for g in grounds}
    assert min(poor.values()) >= 4.5, poor


def test_contrast_of_text_on_buttons_tints_and_ramp(tokens: Tokens) -> None:
    pairs = [("on-accent", "accent"), ("on-accent", "accent-hover")]
    pairs += [("text", f"advantage-{side}-{n}") for side in ("neg", "pos") for n in (1, 2, 3)]
    pairs += [(f"on-reward-{n}", f"reward-{n}") for n in range(7)]
    poor = {pair: contrast(tokens[pair[0]], tokens[pair[1]]) for pair in pairs}
    assert min(poor.values()) >= 4.5, poor


def test_contrast_of_plot_marks_and_focus(tokens: Tokens) -> None:
    marks = [f"plot-{n}" for n in range(1, 9)] + ["focus"]
    poor = {mark: contrast(tokens[mark], tokens["surface"]) for mark in marks}
    assert min(poor.values()) >= 3.0, poor
    assert min(contrast(tokens["focus"], tokens[g]) for g in GROUNDS) >= 3.0


def test_invalid_color_is_named_in_error(tmp_path: Path) -> None:
    path = tmp_path / "odd.toml"
    path.write_text('scheme = "dark"\n[ground]\nsurface = "red"\n')
    with pytest.raises(ValueError, match=r"surface is 'red'"):
        parse_tokens(path)


def test_reward_ramp_ends_and_middle_token() -> None:
    ramp = [reward_token(r, 0.2, 0.75) for r in (-1.0, 0.2, 0.475, 0.75, 9.0)]
    assert ramp == ["reward-0", "reward-0", "reward-3", "reward-6", "reward-6"]
    assert reward_token(0.5, 0.5, 0.5) == "reward-3"


def test_advantage_tint_is_symmetric_and_zero_is_none() -> None:
    assert advantage_token(0.0, 1.0) is None
    assert advantage_token(float("nan"), 1.0) is None
    for value, step in ((0.1, 1), (0.5, 2), (1.0, 3)):
        assert advantage_token(value, 1.0) == f"advantage-pos-{step}"
        assert advantage_token(-value, 1.0) == f"advantage-neg-{step}"


def test_every_placeholder_is_a_token(tokens: Tokens) -> None:
    files = [resource("theme", "studio.qss"), *resource("icons").rglob("*.svg")]
    for path in files:
        for name in re.findall(r"\$\{([a-z0-9-]+)\}", path.read_text(encoding="utf-8")):
            assert name == "scheme" or tokens[name], path


def test_no_literal_color_or_stylesheet_outside_theme() -> None:
    literal = re.compile(r"#[0-9A-Fa-f]{6}\b|QColor\(\s*\d")
    for path in STUDIO.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not literal.search(text), path
        assert path.name == "theme.py" or "setStyleSheet(" not in text, path
    qss = resource("theme", "studio.qss").read_text(encoding="utf-8")
    assert not re.search(r"#[0-9A-Fa-f]{3,8}\b|rgba?\(", qss)


def test_fonts_are_the_bundled_ones(installed: Theme) -> None:
    for style, family in (("body", SANS), ("mono", MONO)):
        for weight in (400, 500, 600):
            info = QFontInfo(make_font(style, weight))
            assert (info.family(), info.weight()) == (family, weight)
    assert (resources_dir() / "fonts" / "OFL-Inter.txt").is_file()
    assert (resources_dir() / "fonts" / "OFL-JetBrainsMono.txt").is_file()


def test_digits_have_equal_width(installed: Theme) -> None:
    from studio.widgets.painting.paint import text_width

    assert text_width("1111", "body") == text_width("8888", "body")


def test_theme_switch_repaints_and_emits_changed(installed: Theme, qtbot) -> None:
    label = QLabel("x")
    qtbot.addWidget(label)
    label.show()
    with qtbot.waitSignal(installed.changed):
        installed.set_mode("light")
    assert installed.scheme == "light"
    assert QApplication.palette().color(QPalette.ColorRole.Window).name().upper() == "#F2F4F1"
    with pytest.raises(ValueError, match="sepia"):
        installed.set_mode("sepia")
    installed.set_mode("dark")


def test_icons_are_tinted_and_cached(installed: Theme) -> None:
    first = installed.pixmap("play", "accent", 16, 2.0)
    assert (first.width(), first.devicePixelRatio()) == (32, 2.0)
    assert installed.pixmap("play", "accent", 16, 2.0).cacheKey() == first.cacheKey()
    inked = {first.toImage().pixelColor(x, y).name() for x in range(32) for y in range(32)}
    assert installed.tokens["accent"].lower() in inked
    assert not installed.drawing("samples/2048", QSize(280, 120), 1.0).isNull()


def test_theme_is_reachable_once_installed(installed: Theme) -> None:
    assert theme() is installed
    assert Theme.install(QApplication.instance(), "dark") is installed  # type: ignore[arg-type]
