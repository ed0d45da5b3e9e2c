"""The table of a league."""

from matches import difference, points


def total(matches, team):
    """Points and goal difference of a team."""
    return [sum(points(one, team) for one in matches), sum(difference(one, team) for one in matches)]


def ranking(matches):
    """Teams, the best first: by points, then goal difference, then name."""
    teams = {one[0] for one in matches} | {one[2] for one in matches}
    return sorted(teams, key=lambda team: [-total(matches, team)[0], -total(matches, team)[1], team])


def champion(matches):
    """The best team, "" if there was no match."""
    order = ranking(matches)
    return order[0] if order else ""


def promoted(matches, count=2):
    """The best `count` teams (2 by default) in alphabetical order."""
    return sorted(ranking(matches)[:count])
