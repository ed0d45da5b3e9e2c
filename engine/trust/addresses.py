"""Addresses that may receive the API key of a provider or tracker.

Without an address, a key goes to the provider's official endpoint. Requests to a loopback address
carry no key. Every other address, and a key for a loopback address, needs the person's confirmation
of this address for this provider.
"""

from collections.abc import Collection, Iterable, Mapping

from engine.protocol.addresses import check_model, is_loopback, normal_address
from engine.protocol.base import Section
from engine.protocol.config.project import EvaluateConfig, JudgeConfig, ProjectConfig
from engine.protocol.config.tracking import TRACKERS, TrackConfig, TrackerName, switched_on
from engine.protocol.problems import ConfigError, Problem
from engine.protocol.records.judging import provider_of
from engine.protocol.requests.trust import AddressConfirmation
from engine.trust.store import edit_record, read_record

CLOUDS: Mapping[str, tuple[str, ...]] = {
    "wandb": ("https://api.wandb.ai",),
    "langfuse": (
        "https://cloud.langfuse.com",
        "https://us.cloud.langfuse.com",
        "https://jp.cloud.langfuse.com",
        "https://hipaa.cloud.langfuse.com",
    ),
}
"""Official addresses of trackers with a cloud service."""
SELF_HOSTED = ("mlflow", "otel")
"""Trackers without a cloud service: their key is sent to a server on this machine, or to a
confirmed address."""
FIELDS: Mapping[str, str] = {
    "wandb": "host",
    "mlflow": "uri",
    "otel": "endpoint",
    "langfuse": "host",
}
"""Setting that holds a tracker's address."""

Confirmed = Collection[AddressConfirmation]


def confirm_address(provider: str, address: str) -> None:
    """Store that a provider's key may be sent to an address. Raises ValueError for an invalid
    address, Refused if it cannot be stored."""
    wanted = AddressConfirmation(provider=provider, address=address)
    with edit_record() as record:
        if wanted not in record.addresses:
            record.addresses.append(wanted)


def confirmed_addresses() -> list[AddressConfirmation]:
    return read_record().addresses


def sends_key(model: str, address: str | None, more: Confirmed = (), where: str = "") -> bool:
    """Whether requests to this model carry the provider's key: yes to the official endpoint
    (`address` None) or a confirmed address, no to an unconfirmed one on this machine. `more` are
    further confirmed addresses, `where` names the setting in errors. Raises ConfigError for any
    other address, or an invalid model name."""
    try:
        check_model(model)
    except ValueError as error:
        raise ConfigError.of(
            "model.bad_name", f"{error}.".replace("..", "."), where=where or "judge.models"
        ) from None
    if not address:
        return True
    return _decide(provider_of(model), address, more, where or "judge.base_url")


def tracker_key(name: TrackerName, settings: Section, key: str) -> str:
    """API key to use for a tracker: `key`, or "" if its address must not get it. Raises ConfigError
    if the address is not allowed."""
    field = FIELDS.get(name)
    address = str(getattr(settings, field)) if field else ""
    if not address or address in CLOUDS.get(name, ()):
        return key
    where = f"track.{name}.{field}"
    if name in SELF_HOSTED and is_loopback(_normal(address, where)):
        return key
    return key if _decide(name, address, (), where) else ""


def check_section(
    section: str, config: JudgeConfig | EvaluateConfig, models: Iterable[str], more: Confirmed = ()
) -> None:
    """Raise ConfigError for the first of `models` to which no request may be sent, because the
    `base_url` of the settings' `section` (parsed as `config`) is confirmed neither on this machine
    nor in `more`."""
    for model in models:
        sends_key(model, config.base_url, more, f"{section}.base_url")


def check_addresses(
    config: ProjectConfig, providers: Iterable[str] = (), more: Confirmed = ()
) -> None:
    """Check all addresses of a run: judges, trackers, and the models `providers` that an evaluation
    compares. `more` are further confirmed addresses. Raises ConfigError for one that is not."""
    if problems := address_problems(config, providers, more):
        raise ConfigError(problems[0])


def address_problems(
    config: ProjectConfig, providers: Iterable[str] = (), more: Confirmed = ()
) -> list[Problem]:
    """Problems of unconfirmed addresses of a run: judges, trackers, and the models `providers` that
    an evaluation compares. `more` are further confirmed addresses."""
    found: list[Problem] = []
    judges = config.judge.models if config.judge.enabled else ()
    sections: list[tuple[str, JudgeConfig | EvaluateConfig, Iterable[str]]] = [
        ("judge", config.judge, judges),
        ("evaluate", config.evaluate, providers),
    ]
    for section, one, models in sections:
        for model in models:
            try:
                check_section(section, one, [model], more)
            except ConfigError as error:
                found.append(error.problem)
    return found + tracker_problems(config.track)


def tracker_problems(track: TrackConfig) -> list[Problem]:
    """Problems of enabled trackers whose addresses are not allowed."""
    found = []
    for name in switched_on(track):
        try:
            tracker_key(name, getattr(track, name), "")
        except ConfigError as error:
            found.append(error.problem)
    return found


def _decide(provider: str, address: str, more: Confirmed, where: str) -> bool:
    normal = _normal(address, where)
    confirmed = AddressConfirmation(provider=provider, address=normal)
    if confirmed in more or confirmed in confirmed_addresses():
        return True
    if is_loopback(normal):
        return False
    raise ConfigError.of(
        "address.unconfirmed",
        f"{normal} is not {_title(provider)}'s official address and is not confirmed. It would "
        "receive your key and all requests.",
        "Confirm the address only if you trust it: in the studio, or with "
        f"`atelier trust --confirm-address {provider}={normal}`; otherwise change the setting.",
        where=where,
        detail=confirmed.model_dump_json(),
    )


def _normal(address: str, where: str) -> str:
    try:
        return normal_address(address)
    except ValueError as error:
        raise ConfigError.of("address.bad", f"{address[:200]!a} {error}.", where=where) from None


def _title(provider: str) -> str:
    return TRACKERS.get(provider, provider)  # type: ignore[call-overload, no-any-return]
