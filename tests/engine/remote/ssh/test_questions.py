"""Timeout clock that pauses during questions, and the text shown to the person."""

import asyncio

import pytest

from engine.remote.ssh.problems import Place, printable
from engine.remote.ssh.questions import Clock, QuestionService, kind_of_secret
from tests.engine.remote.ssh.person import ScriptedPrompter


def test_clock_pauses_during_questions() -> None:
    async def work() -> None:
        clock = Clock(0.2)
        prompter = QuestionService(
            ScriptedPrompter({"code": ["1", "2"]}, delay_s=0.3), Place("a@b:22"), clock
        )
        async with clock:
            questions = (prompter.ask("code", "first"), prompter.ask("code", "second"))
            assert sorted(await asyncio.gather(*questions)) == ["1", "2"]  # type: ignore[type-var]
        assert prompter.question_count == 2

    asyncio.run(work())


def test_clock_counts_time_outside_questions() -> None:
    async def work() -> None:
        clock = Clock(0.1)
        prompter = QuestionService(
            ScriptedPrompter({"code": ["1"]}, delay_s=0.2), Place("a@b:22"), clock
        )
        async with clock:
            await prompter.ask("code", "first")
            await asyncio.sleep(5)

    async def next_step() -> None:
        async with Clock(5) as clock:
            clock.allow(0.05)
            await asyncio.sleep(5)

    for expiring_work in (work, next_step):
        with pytest.raises(TimeoutError):
            asyncio.run(expiring_work())


@pytest.mark.parametrize(
    ("prompt", "echo", "kind"),
    [
        ("Password: ", False, "password"),
        ("(current) UNIX password:", False, "password"),
        ("One-time password (OATH): ", False, "code"),
        ("Verification code: ", False, "code"),
        ("Duo two-factor login\nPasscode or option (1-3): ", True, "code"),
    ],
)
def test_kind_of_secret_is_derived_from_the_prompt(prompt: str, echo: bool, kind: str) -> None:
    assert kind_of_secret(prompt, echo) == kind


def test_printable_strips_control_sequences_and_truncates() -> None:
    assert printable("\x1b[31mred\x1b[0m \x1b]0;title\x07\r\nnext\x00\u202e\n") == "red \nnext"
    assert len(printable("x" * 5000)) == 2000
