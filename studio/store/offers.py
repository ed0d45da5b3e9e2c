"""Buttons that a row offers: an action on an engine, an environment or a server."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Offer:
    """Button: action, label, icon, tooltip; an optional price, the reason if it is disabled, and
    whether it is less prominent."""

    verb: str
    words: str
    icon: str
    tip: str
    price: str = ""
    refused: str = ""
    quiet: bool = False
