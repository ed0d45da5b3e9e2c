"""Judge page: rubric, judge settings, agreement, blind grading. Imported by
`shell.page_registry`."""
