"""Walks over a grid."""

from cells import distance, inside, move


def walk(start, ways, rows, columns):
    """Cell at the end of a walk; a step that would leave the grid is not taken."""
    cell = start
    for way in ways:
        following = move(cell, way)
        if inside(following, rows, columns):
            cell = following
    return cell


def nearest(cell, others):
    """The nearest of the other cells, the first one of equals; None if there are none."""
    if not others:
        return None
    best = others[0]
    for other in others[1:]:
        if distance(cell, other) < distance(cell, best):
            best = other
    return best


def length(path):
    """Steps of a path through these cells, one after the other."""
    return sum(distance(path[place], path[place + 1]) for place in range(len(path) - 1))
