"""Theme: colour tokens, fonts, icons, tooltips and item roles. Imported by widgets, models and
above."""
