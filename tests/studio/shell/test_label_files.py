"""Labels of a run: from the button to a file and back, over a fake engine on HTTP."""

from pathlib import Path
from typing import Any

from PySide6.QtWidgets import QApplication, QFileDialog, QLineEdit

from engine.protocol.records.labels import Label, Word
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.pages.judge.test_page import judge_page, lab

__all__ = ["lab"]


async def choose(window: Any, file: Path) -> None:
    await until(lambda: window.findChildren(QFileDialog))
    (dialog,) = window.findChildren(QFileDialog)
    dialog.findChild(QLineEdit).setText(str(file))
    dialog.done(QFileDialog.DialogCode.Accepted)
    await until(lambda: not window.findChildren(QFileDialog))


def test_labels_are_exported_and_imported(
    lab: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with judge_page(lab, qapp, tmp_path) as page:
            session, window = page.session, page.window()
            run_id = session.run.run_id
            names = [
                one.id
                for one in (await session.client.siblings(run_id, "train", 1, 0)).trajectories
            ]
            word = Word(kind="best", trajectory_id=names[0])
            await session.client.add_label(run_id, Label(id="one", step=1, group=0, words=(word,)))
            said: list[str] = []
            problems: list[Any] = []
            session.notice.connect(said.append)
            session.problem_raised.connect(problems.append)
            file = tmp_path / "mine.jsonl"
            page.agreement._save.click()
            await choose(window, file)
            await until(lambda: any("1 label from" in words for words in said))
            (kept,) = [Label.model_validate_json(line) for line in file.read_text().splitlines()]
            assert (kept.id, kept.words) == ("one", (word,))
            other = kept.model_copy(
                update={
                    "id": "two",
                    "group": 1,
                    "words": (Word(kind="note", text="Read this one."),),
                }
            )
            file.write_text(f"{kept.model_dump_json()}\n\n{other.model_dump_json()}\n")
            page.agreement._load.click()
            await choose(window, file)
            await until(lambda: any("1 label imported" in words for words in said))
            assert any("1 were already stored" in words for words in said)
            assert {one.id for one in await session.client.labels(run_id)} == {"one", "two"}
            file.write_text("{}\n")
            page.agreement._load.click()
            await choose(window, file)
            await until(lambda: bool(problems))
            assert problems[0].where == f"{file}:1"

    run(job())
