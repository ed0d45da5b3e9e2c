"""A clock that stands still while a person thinks, and what is shown to them."""

import asyncio

import pytest

from engine.remote.ssh.problems import Place, printable
from engine.remote.ssh.questions import Clock, QuestionService, kind_of_secret
from tests.engine.remote.ssh.person import Scripted


def test_the_time_of_a_person_does_not_count() -> None:
    async def work() -> None:
        clock = Clock(0.2)
        person = QuestionService(
            Scripted({"code": ["1", "2"]}, delay_s=0.3), Place("a@b:22"), clock
        )
        async with clock:
            both = (person.ask("code", "first"), person.ask("code", "second"))
            assert sorted(await asyncio.gather(*both)) == ["1", "2"]  # type: ignore[type-var]
        assert person.question_count == 2

    asyncio.run(work())


def test_the_rest_of_it_does() -> None:
    async def work() -> None:
        clock = Clock(0.1)
        person = QuestionService(Scripted({"code": ["1"]}, delay_s=0.2), Place("a@b:22"), clock)
        async with clock:
            await person.ask("code", "first")
            await asyncio.sleep(5)

    async def next_step() -> None:
        async with Clock(5) as clock:
            clock.allow(0.05)
            await asyncio.sleep(5)

    for late in (work, next_step):
        with pytest.raises(TimeoutError):
            asyncio.run(late())


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
def test_what_kind_of_secret_it_is(prompt: str, echo: bool, kind: str) -> None:
    assert kind_of_secret(prompt, echo) == kind


def test_text_of_theirs_is_plain() -> None:
    assert printable("\x1b[31mred\x1b[0m \x1b]0;title\x07\r\nnext\x00\u202e\n") == "red \nnext"
    assert len(printable("x" * 5000)) == 2000
