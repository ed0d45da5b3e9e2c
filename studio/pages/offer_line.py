"""Line of the buttons that a row offers."""

from PySide6.QtWidgets import QHBoxLayout

from studio.store.offers import Offer
from studio.theme.plain_tooltips import set_tip
from studio.widgets.controls.buttons import Button


class OfferLine(QHBoxLayout):
    """Layout of action buttons, rebuilt only when they change so that focus stays."""

    def __init__(self) -> None:
        super().__init__()
        self.setSpacing(6)
        self._offers: tuple[Offer, ...] = ()

    def show_offers(self, offers: tuple[Offer, ...], about: str) -> list[Button]:
        """Replace the buttons by one per offer; `about` names their row for screen readers. Returns
        the new buttons; empty if the offers are unchanged, and the old buttons stay."""
        if offers == self._offers:
            return []
        self._offers = offers
        had_focus = self._clear()
        made = [self._make(offer, about) for offer in offers]
        if had_focus and (enabled := [button for button in made if button.isEnabled()]):
            enabled[0].setFocus()
        return made

    def _make(self, offer: Offer, about: str) -> Button:
        kind = "quiet" if offer.quiet else "outlined"
        button = Button(offer.words, kind, icon=offer.icon, price=offer.price, height=28)
        tip = offer.refused or offer.tip
        set_tip(button, tip)
        button.setEnabled(not offer.refused)
        button.setAccessibleDescription(f"{about}: {tip}")
        button.setProperty("verb", offer.verb)
        self.addWidget(button)
        return button

    def _clear(self) -> bool:
        """Remove all buttons; returns True if one of them had the focus."""
        had_focus = False
        while (item := self.takeAt(0)) is not None:
            if (button := item.widget()) is not None:
                had_focus = had_focus or button.hasFocus()
                button.hide()
                button.deleteLater()
        return had_focus
