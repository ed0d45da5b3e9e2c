"""Item roles that our models fill and our delegates draw.

`TONE_ROLE` a text tone, `ICON_ROLE` an icon name, `VALUE_ROLE` what a drawn column (dots, parts,
sparkline, meter, interval) draws, `BELOW_ROLE` a second line under the first, `CHIPS_ROLE` small
words in boxes after the first: (words, tone) pairs.
"""

from PySide6.QtCore import Qt

TONE_ROLE = int(Qt.ItemDataRole.UserRole) + 101
ICON_ROLE = int(Qt.ItemDataRole.UserRole) + 102
VALUE_ROLE = int(Qt.ItemDataRole.UserRole) + 103
BELOW_ROLE = int(Qt.ItemDataRole.UserRole) + 104
CHIPS_ROLE = int(Qt.ItemDataRole.UserRole) + 105
