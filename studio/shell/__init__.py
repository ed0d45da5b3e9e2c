"""Shell of the window: palette, menus, help and the parts that connect pages to the window.

Imported by `app` alone.
"""
