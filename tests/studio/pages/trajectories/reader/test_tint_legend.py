"""Legend of the token colours: its ends are those of the tint, in colours of its own."""

import pytest
from pytestqt.qtbot import QtBot

from studio.pages.trajectories.reader.tint_legend import scale_of
from studio.widgets.transcript.items import Message, Token, tint_of
from studio.widgets.transcript.view import Transcript


@pytest.mark.parametrize(
    ("tint", "words"),
    [
        ("advantage", "−1.50 to +1.50"),
        ("logprob", "0 to −1.50, least likely"),
        ("entropy", "0 to 1.50, least certain"),
        ("mask", "trained"),
    ],
)
def test_legend_names_the_ends_of_the_scale(tint: str, words: str) -> None:
    scale = scale_of(tint, 1.5)
    assert scale is not None
    assert scale.words() == words


def test_nothing_coloured_has_no_legend() -> None:
    assert scale_of("none", 1.0) is None
    assert scale_of("advantage", 0.0) is None


def test_strongest_colour_of_a_tint_is_in_its_legend() -> None:
    token = Token("word", advantage=-1.5, logprob=-1.5, entropy=1.5)
    strongest = {tint: tint_of(token, tint, 1.5) for tint in ("advantage", "logprob", "entropy")}
    for tint, color in strongest.items():
        scale = scale_of(tint, 1.5)
        assert scale is not None
        assert color in scale.swatches
    assert strongest["logprob"] != strongest["advantage"], "unlikely is not bad"


def test_full_colour_is_the_largest_advantage_of_the_group(qtbot: QtBot) -> None:
    transcript = Transcript()
    qtbot.addWidget(transcript)
    turn = Message("assistant", "a", "Turn 1", tokens=(Token("a", advantage=0.5),))
    transcript.set_items([turn], largest=2.0)
    assert transcript.largest() == 2.0
    transcript.set_items([turn])
    assert transcript.largest() == 0.5
