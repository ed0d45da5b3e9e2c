"""Versions of a rubric: every source that was ever saved, whole."""

from pathlib import Path

from engine.judge.prompting.rubric_versions import save_rubric, view_rubric


def test_a_source_with_separators_of_its_own_stays_one_version(tmp_path: Path) -> None:
    file = tmp_path / "rubric.md"
    for source in ("Be brief.\u2028Be right.\n", "Be brief.\u0085Be kind.\n"):
        save_rubric(file, source)
    assert [one.source for one in view_rubric(file).versions] == [
        "Be brief.\u2028Be right.\n",
        "Be brief.\u0085Be kind.\n",
    ]
