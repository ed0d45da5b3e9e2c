"""Figures as people read them."""

NONE = "–"


def seconds(value: float | None) -> str:
    if value is None:
        return NONE
    if value < 0.0995:
        return f"{value * 1000:.3g} ms"
    return f"{value:.2f} s" if value < 10 else f"{value:.1f} s"


def gib(value: float | None) -> str:
    return NONE if value is None else f"{value / 2**30:.2f} GiB"


def share(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value:.1%}" if value < 0.0995 else f"{value:.0%}"


def rate(value: float | None) -> str:
    return NONE if value is None else f"{value:,.0f}".replace(",", " ")


def tiny(value: float | None) -> str:
    """Differences: their power of ten is what counts."""
    if value is None:
        return NONE
    return "0" if value == 0 else f"{value:.1e}"


def times(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f}×"


def plain(value: float | None) -> str:
    return NONE if value is None else f"{value:.3f}".replace("-", "−")
