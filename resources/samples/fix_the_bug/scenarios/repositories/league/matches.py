"""Matches: [home team, goals, away team, goals]."""


def points(match, team):
    """Points of a team in a match: 3 for a win, 1 for a draw, 0 for a loss or if it did not play."""
    home, scored, away, against = match
    if team == away:
        scored, against = against, scored
    elif team != home:
        return 0
    if scored > against:
        return 3
    return 1 if scored == against else 0


def difference(match, team):
    """Goals of a team minus those of the other one; 0 if it did not play."""
    home, scored, away, against = match
    if team == home:
        return scored - against
    return against - scored if team == away else 0
