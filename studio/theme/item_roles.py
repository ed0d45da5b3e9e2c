"""Item roles provided by the models and drawn by the delegates.

`TONE_ROLE` is a text tone, `ICON_ROLE` an icon name, `VALUE_ROLE` the value of a drawn column
(dots, parts, sparkline, meter, interval), `BELOW_ROLE` a second line, `CHIPS_ROLE` chips after the
text: (text, tone) pairs, `HITS_ROLE` the ranges of characters that the filter matches."""

from PySide6.QtCore import Qt

TONE_ROLE = int(Qt.ItemDataRole.UserRole) + 101
ICON_ROLE = int(Qt.ItemDataRole.UserRole) + 102
VALUE_ROLE = int(Qt.ItemDataRole.UserRole) + 103
BELOW_ROLE = int(Qt.ItemDataRole.UserRole) + 104
CHIPS_ROLE = int(Qt.ItemDataRole.UserRole) + 105
HITS_ROLE = int(Qt.ItemDataRole.UserRole) + 106
