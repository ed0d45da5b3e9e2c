"""Shell of the window: palette, menus, help, and connections between pages and window. Imported by
`app` alone."""
