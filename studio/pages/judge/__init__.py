"""Judge: the rubric, what it would change, how far it can be trusted, blind grading."""
