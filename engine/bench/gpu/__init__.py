"""The GPU check: what a card does with every backend that is installed, written as a page.

`survey` says what is there, `plan` which checks there are and what each needs, `runner` gives every
one a process of its own, `page` tells it to a person. What is missing is skipped with its reason.
"""
