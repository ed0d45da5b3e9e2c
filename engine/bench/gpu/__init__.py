"""GPU report (`bench --gpu`): what a card does with every installed backend, as one page.

Imported by `cli`.
"""
