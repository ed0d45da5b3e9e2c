"""Table of the keyboard shortcuts, in Settings and in the shortcut sheet (?)."""

from PySide6.QtWidgets import QWidget

from studio.models.shortcuts import ShortcutTableModel
from studio.widgets.tables.table import Table


def shortcut_table(parent: QWidget) -> Table:
    table = Table("Keyboard shortcuts")
    table.setParent(parent)
    table.setModel(ShortcutTableModel(parent=table))
    table.set_column(0, None)
    table.set_column(1, 160, "strong")
    table.set_column(2, 140)
    return table
