"""Servers: the list, the wizard, the sheet of one, runs and checkpoints that are there."""

import time
from functools import partial
from typing import Any

from engine.protocol.requests.remote import FarEngine, HostTick, HostView
from tests.studio.buttons.stage import Row, Scene, Stage
from tests.studio.fakes.servers import (
    BUILD,
    CODE,
    HOST_KEY,
    NOT_INSTALLED,
    OTHER_HOME,
    PASSPHRASE,
    REPORT,
    UNREACHABLE,
    view,
)

SSH = "a server that is reached over SSH, with an engine of gigabytes on it"
RUN = "01JD5MAMBERKESTREL00000000"
BRINGING = HostTick(stage="uploading", words="torch 2.13.0", done=210_000_000, total=526_000_000)
SILENT = UNREACHABLE.model_copy(update={"code": "host.engine_silent"})
BOTH = REPORT.model_copy(
    update={"engines": [FarEngine(id=BUILD, current=True), FarEngine(id="0.0.9", previous=True)]}
)
Retrying = partial(view, state="reconnecting", failures=1)


async def put(stage: Stage, one: HostView) -> None:
    """The server is so, and the window knows."""
    servers = stage.behind.servers
    servers.pace_s = 30.0
    if servers.views.get(one.spec.name) != one:
        servers.put(one)
    await stage.until(lambda: stage.session.hosts.view(one.spec.name) == one)


async def listed(stage: Stage, one: HostView) -> None:
    await put(stage, one)
    stage.studio.actions.trigger("servers.open")


async def sheet(stage: Stage, one: HostView) -> None:
    await put(stage, one)
    if not stage.studio.servers.sheet.is_open():
        stage.studio.servers.sheet.show_host(one.spec.name)


async def address(stage: Stage) -> None:
    wizard: Any = stage.studio.servers.wizard
    if not wizard.is_open():
        stage.page("settings")
        stage.studio.actions.trigger("servers.add")
    wizard._form.address.set_value("mara@annex.lab")
    wizard._form.name.set_value("annex")


async def wizard(stage: Stage, one: HostView) -> None:
    """A server that is being added."""
    await put(stage, one)
    found: Any = stage.studio.servers.wizard
    if not found.is_open():
        found.go_on(one.spec.name)


async def asked(stage: Stage, question: Any) -> None:
    """A connection waits for what only a person knows."""
    servers = stage.behind.servers
    if not stage.dialog(""):
        fresh = question.model_copy(update={"id": f"{question.id} {time.monotonic()}"})
        servers._waiting[fresh.id] = _Answered()
        await put(stage, view(state="asking", questions=[fresh]))
    await stage.until(lambda: stage.dialog(""))


class _Answered:
    """In place of the connection that waits for an answer."""

    def set_result(self, value: object) -> None:
        pass


async def there(stage: Stage, state: str = "connected", **values: Any) -> None:
    """The living run is on box, and its checkpoints are not here."""
    engine = stage.behind
    if engine.servers.lives_on.get(RUN) != "box":
        engine.servers.lives_on[RUN] = "box"
        engine._refresh(engine.runs[RUN], "inbox-scout")
        engine.kept.elsewhere |= set(range(200))
        stage.session.refresh()
        await stage.until(lambda: stage.session.run.summary.host == "box")
    known = engine.servers.views.get("box")
    if known is None or known.state != state:
        await put(stage, view(state=state, **values))


async def away(stage: Stage) -> None:
    stage.page("run")
    await there(stage, "reconnecting", failures=1, retry_at=time.time() + 600, problem=UNREACHABLE)


async def elsewhere(stage: Stage) -> Any:
    await there(stage)
    page = stage.page("checkpoints")
    await stage.until(lambda: page._model.rows and any(row.elsewhere for row in page._model.rows))
    page._list.table.selectRow(next(n for n, row in enumerate(page._model.rows) if row.elsewhere))
    return page


async def not_here(stage: Stage) -> None:
    await elsewhere(stage)


async def fetching(stage: Stage) -> None:
    page = await elsewhere(stage)
    stage.behind.servers.pace_s = 30.0
    if page._fetches.coming is None:
        page._list.fetch_wanted.emit(next(row for row in page._model.rows if row.elsewhere))
        await stage.until(lambda: page._fetches.coming is not None)


async def agreeing(stage: Stage) -> None:
    """A comparison of what is not here."""
    page = await elsewhere(stage)
    page._fetches.cancel()
    stage.session.hosts.choose(stage.session.project.path, "")
    if not stage.dialog("Not on this machine"):
        page._list.evaluate_wanted.emit()
        await stage.until(lambda: stage.dialog("Not on this machine"))


async def moving(stage: Stage) -> None:
    await there(stage)
    stage.behind.servers.pace_s = 30.0
    if not stage.studio.servers.moves.is_open():
        stage.studio.servers.moves.bring_home(stage.session.run.summary)


REMOTE = [
    Scene(
        "no server",
        partial(listed, one=view(state="away")),
        [
            Row("HostRow: Connect", "POST /hosts/box .*connect"),
            Row("HostRow._open", "shown HostSheet"),
        ],
        fake=SSH,
    ),
    Scene(
        "report",
        partial(wizard, one=view(state="stopped", problem=NOT_INSTALLED, report=REPORT)),
        [
            Row("AddServerSheet._later", "hidden AddServerSheet"),
            Row("AddServerSheet._again", "POST /hosts/box .*connect"),
        ],
        fake=SSH,
    ),
    Scene(
        "report",
        partial(wizard, one=view(state="stopped", problem=NOT_INSTALLED, report=REPORT)),
        [Row("AddServerSheet._back", "hidden Button Back")],
        fake=SSH,
    ),
    Scene(
        "ready",
        partial(wizard, one=view(state="connected")),
        [
            Row("ReadyStep.chosen", "checked Toggle Train this project here"),
            Row("AddServerSheet._main", "hidden AddServerSheet", "Done"),
        ],
        fake=SSH,
    ),
    Scene(
        "retrying",
        partial(listed, one=Retrying(problem=UNREACHABLE)),
        [Row("HostRow: Retry now", "POST /hosts/box .*connect")],
        fake=SSH,
    ),
    Scene(
        "installing",
        partial(listed, one=view(state="installing", tick=BRINGING, report=REPORT)),
        [Row("HostRow: Cancel", "POST /hosts/box .*disconnect")],
        fake=SSH,
    ),
    Scene(
        "another home",
        partial(listed, one=view(state="stopped", problem=OTHER_HOME)),
        [Row("HostRow: Take over", "POST /hosts/box .*take_over")],
        fake=SSH,
    ),
    Scene(
        "not installed",
        partial(listed, one=view(state="stopped", problem=NOT_INSTALLED, report=REPORT)),
        [Row("HostRow: Install", "shown AddServerSheet")],
        fake=SSH,
    ),
    Scene(
        "outdated",
        partial(listed, one=view(state="connected", outdated=True, report=BOTH)),
        [Row("HostRow: Update", "POST /hosts/box .*install")],
        fake=SSH,
    ),
    Scene(
        "sheet",
        partial(sheet, one=view(state="connected", outdated=True, report=BOTH)),
        [
            Row("HostSheet: Close", "hidden HostSheet"),
            Row("HostSheet._edit", "shown AddServerSheet"),
            Row("HostSheet: Update", "POST /hosts/box .*install"),
        ],
        fake=SSH,
    ),
    Scene(
        "sheet",
        partial(sheet, one=view(state="connected", report=BOTH)),
        [Row("HostSheet: Roll back", "POST /hosts/box .*roll_back")],
        fake=SSH,
    ),
    Scene(
        "sheet",
        partial(sheet, one=view(state="connected", report=BOTH, behind=1)),
        [
            Row("HostSheet: Stop engine", "shown Question Stop the engine"),
            Row("HostSheet: Remove from this server", "shown Question Remove Atelier"),
            Row("HostSheet: Remove entry", "shown Question Remove box"),
            Row("HostSheet: Disconnect", "POST /hosts/box .*disconnect"),
        ],
        fake=SSH,
    ),
    Scene(
        "sheet, away",
        partial(sheet, one=view(state="away")),
        [Row("HostSheet: Connect", "POST /hosts/box .*connect")],
        fake=SSH,
    ),
    Scene(
        "sheet, silent",
        partial(sheet, one=Retrying(problem=SILENT)),
        [Row("HostSheet: Repair", "POST /hosts/box .*install|shown AddServerSheet")],
        fake=SSH,
    ),
    Scene(
        "sheet, unreachable",
        partial(sheet, one=Retrying(problem=UNREACHABLE)),
        [Row("HostSheet: Retry now", "POST /hosts/box .*connect")],
        fake=SSH,
    ),
    Scene(
        "sheet, another home",
        partial(sheet, one=view(state="stopped", problem=OTHER_HOME)),
        [Row("HostSheet: Take over", "POST /hosts/box .*take_over")],
        fake=SSH,
    ),
    Scene(
        "sheet, nothing there",
        partial(sheet, one=view(state="stopped", problem=NOT_INSTALLED, report=REPORT)),
        [Row("HostSheet: Install", "shown AddServerSheet")],
        fake=SSH,
    ),
    Scene(
        "sheet, installing",
        partial(sheet, one=view(state="installing", tick=BRINGING, report=REPORT)),
        [Row("HostSheet: Cancel", "POST /hosts/box .*disconnect")],
        fake=SSH,
    ),
    Scene(
        "a key is shown",
        partial(asked, question=HOST_KEY),
        [
            Row("FingerprintField._copy of Question", "copied SHA256"),
            Row("Question: Trust and connect", "POST /hosts/box/answer"),
        ],
        fake=SSH,
    ),
    Scene(
        "a passphrase is asked for",
        partial(asked, question=PASSPHRASE),
        [
            Row("SecretField._keep of Question", "checked Toggle Store in the system keyring"),
            Row("Question: Cancel", "POST /hosts/box/answer"),
        ],
        fake=SSH,
    ),
    Scene(
        "a passphrase is typed",
        partial(asked, question=PASSPHRASE),
        [Row("Question: Unlock", "POST /hosts/box/answer")],
        fake=SSH,
    ),
    Scene(
        "a code is asked for",
        partial(asked, question=CODE),
        [Row("Question: Answer", "POST /hosts/box/answer")],
        fake=SSH,
    ),
    Scene("not here", not_here, [Row("ListCard._fetch", "POST .*/fetch")], fake=SSH),
    Scene(
        "fetching", fetching, [Row("ListCard._stop", "hidden IconButton Stop fetching")], fake=SSH
    ),
    Scene(
        "agreeing",
        agreeing,
        [
            Row("Question: Cancel", "hidden Question Not on this machine"),
            Row("Question: Evaluate on box", "POST /evaluations"),
            Row("Question: Fetch and continue", "POST .*/fetch"),
        ],
        fake=SSH,
    ),
    Scene(
        "moving",
        moving,
        [
            Row("MoveSheet: Close", "hidden MoveSheet"),
            Row("MoveSheet._cancel", "hidden MoveSheet", "Cancel"),
            Row("MoveSheet._go", "POST .*/bring_home"),
        ],
        fake=SSH,
    ),
    Scene("away", away, [Row("AwayBar._again", "POST /hosts/box .*connect")], fake=SSH),
    Scene(
        "address",
        address,
        [
            Row("AddServerSheet: Close", "hidden AddServerSheet"),
            Row("AddressForm._fold", "shown FormRow"),
            Row("AddServerSheet._main", "POST /hosts .*annex", "Connect"),
        ],
        fake=SSH,
    ),
]
