"""Row of facts: all of them stay visible, on more lines where the width is small."""

from pytestqt.qtbot import QtBot

from studio.widgets.cards.facts import Fact, FactRow

FACTS = [
    Fact("Pairs that flip between passes", "6%"),
    Fact("Agreement between passes", "τ 0.94"),
    Fact("Correlation of score and length", "τ +0.08"),
    Fact("Canaries detected", "3 / 4"),
]


def test_facts_wrap_and_stay_inside(qtbot: QtBot) -> None:
    row = FactRow()
    qtbot.addWidget(row)
    row.set_facts(FACTS)
    row.show()
    heights = []
    for width, lines in ((900, 1), (480, 2), (260, 4)):
        row.resize(width, row.height())
        assert len(row.rows()) == lines
        assert [fact for line in row.rows() for fact in line] == FACTS
        for line in row.rows():
            assert sum(row._width(fact) for fact in line) <= width
        heights.append(row.minimumHeight())
    assert heights == sorted({*heights})
