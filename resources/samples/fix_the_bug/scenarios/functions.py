"""Functions of level 1: a name, a sentence that says what it returns, and one line of code, drawn by chance.

`draw(luck)` returns a module with one function, and arguments to try it with.
"""

from itertools import product

MEASURES = ("weight", "height", "speed", "price", "depth", "age", "size", "score", "width", "volume", "heat", "load")
ADJECTIVES = ("big", "small", "fine", "ready", "open", "rare", "safe", "good", "ripe", "full", "legal", "valid")
THINGS = ("apples", "books", "cups", "tickets", "stamps", "coins", "plates", "lamps", "shirts", "bikes", "seats", "keys")
WORDS = ("oak", "Birch", "elm", "ROSE", "fern", "Moss", "ivy", "reed")
LISTS = ([], [4], [3, 1], [5, 9, 2], [7, 7, 1, 8], [2, 6, 4, 9, 3], [8, 1, 5, 3, 9, 2], [6, 2, 2, 7, 1, 4, 8])


def draw(luck):
    """{"name", "source", "arguments"} of a random function."""
    name, head, says, code, arguments = luck.choice(KINDS)(luck)
    source = f'def {name}({head}):\n    """{says}"""\n    return {code}\n'
    return {"name": name, "source": source, "arguments": arguments}


def compared(luck):
    measure, adjective, least = luck.choice(MEASURES), luck.choice(ADJECTIVES), luck.randint(5, 60)
    words, sign = luck.choice(
        [("more than", ">"), ("at least", ">="), ("less than", "<"), ("at most", "<="), ("equal to", "==")]
    )
    near = [(least + step,) for step in range(-6, 7)]
    return f"is_{adjective}", measure, f"True if {measure} is {words} {least}.", f"{measure} {sign} {least}", near


def between(luck):
    measure, adjective, least = luck.choice(MEASURES), luck.choice(ADJECTIVES), luck.randint(2, 30)
    most = least + luck.randint(4, 30)
    values = [(one,) for one in range(least - 3, least + 4)] + [(one,) for one in range(most - 3, most + 4)]
    says = f"True if {measure} is at least {least} and at most {most}."
    return f"is_{adjective}", measure, says, f"{least} <= {measure} <= {most}", values


def calculated(luck):
    first, second = luck.sample(THINGS, 2)
    word, sign = luck.choice([("plus", "+"), ("minus", "-"), ("times", "*")])
    verb = {"+": "add", "-": "less", "*": "multiply"}[sign]
    values = list(product((2, 5, 9, 14), (1, 3, 7, 20)))
    return f"{verb}_{second}", f"{first}, {second}", f"Return {first} {word} {second}.", f"{first} {sign} {second}", values


def with_constant(luck):
    thing, number = luck.choice(THINGS), luck.randint(2, 40)
    word, sign, verb = luck.choice(
        [("plus", "+", "more"), ("minus", "-", "fewer"), ("times", "*", "scaled"), ("divided by", "//", "shared")]
    )
    values = [(one,) for one in (0, 3, 8, 15, 22, 41, 57, 64, 90, 120, 333)]
    return f"{verb}_{thing}", thing, f"Return {thing} {word} {number}.", f"{thing} {sign} {number}", values


def with_default(luck):
    measure, extra, number = luck.choice(MEASURES), luck.choice(("fee", "tip", "bonus", "margin")), luck.randint(2, 30)
    word, sign = luck.choice([("plus", "+"), ("minus", "-")])
    says = f"Return {measure} {word} {extra}; {extra} is {number} by default."
    values = [(one,) for one in (1, 4, 10, 33, 70, 81)] + [(5, 1), (8, 6), (40, 9), (3, 3)]
    return f"{measure}_with_{extra}", f"{measure}, {extra}={number}", says, f"{measure} {sign} {extra}", values


def divisible(luck):
    thing, number = luck.choice(THINGS), luck.randint(2, 9)
    says = f"True if {thing} can be divided by {number} without a rest."
    values = [(one,) for one in range(1, 41)]
    return f"split_{thing}", thing, says, f"{thing} % {number} == 0", values


def cut(luck):
    thing, number = luck.choice(THINGS), luck.randint(1, 4)
    word, code = luck.choice(
        [("the first {n}", "[:{n}]"), ("all but the first {n}", "[{n}:]"), ("the last {n}", "[-{n}:]"),
         ("all but the last {n}", "[:-{n}]")]
    )  # fmt: skip
    says = f"Return {word.format(n=number)} of {thing}."
    return f"some_{thing}", thing, says, thing + code.format(n=number), [(one,) for one in LISTS[1:]]


def chosen(luck):
    first, second = luck.sample(MEASURES, 2)
    word, name = luck.choice([("larger", "max"), ("smaller", "min")])
    values = list(product((2, 5, 9), (1, 3, 7, 20)))
    says = f"Return the {word} of {first} and {second}."
    return f"{word}_{second}", f"{first}, {second}", says, f"{name}({first}, {second})", values


def summed(luck):
    thing, number = luck.choice(THINGS), luck.randint(1, 30)
    word, name = luck.choice([("sum", "sum"), ("largest", "max"), ("smallest", "min")])
    says = f"Return the {word} of {thing}, {number} if there are none."
    return f"{word}_{thing}", thing, says, f"{name}({thing}) if {thing} else {number}", [(one,) for one in LISTS]


def both(luck):
    first, second = luck.sample(ADJECTIVES, 2)
    word, sign = luck.choice([("both", "and"), ("one or both", "or")])
    linked = {"and": f"{first} and {second} are both", "or": f"{first} or {second} is"}[sign]
    return f"is_{word.split()[0]}", f"{first}, {second}", f"True if {linked} true.", f"{first} {sign} {second}", list(
        product((True, False, 0, 1), (True, False))
    )


def joined(luck):
    first, second = luck.sample(("first", "last", "street", "city", "day", "month", "brand", "model", "author", "book"), 2)
    name, sign = luck.choice([("a space", " "), ("a comma", ","), ("a dash", "-"), ("a colon", ":"), ("a slash", "/")])
    says = f"Return {first}, {name}, {second}."
    values = list(product(WORDS[:4], WORDS[4:]))
    return f"join_{second}", f"{first}, {second}", says, f"{first} + {sign!r} + {second}", values


def spelled(luck):
    thing, letter = luck.choice(("name", "word", "title", "label", "code", "city", "line", "tag")), luck.choice("aeiorst")
    says, code, verb = luck.choice(
        [
            (f"Return {thing} in upper case.", f"{thing}.upper()", "loud"),
            (f"Return {thing} in lower case.", f"{thing}.lower()", "quiet"),
            (f"True if {thing} starts with {letter}.", f"{thing}.startswith({letter!r})", f"{letter}_first"),
            (f"True if {thing} ends with {letter}.", f"{thing}.endswith({letter!r})", f"{letter}_last"),
            (f"True if {letter} is in {thing}.", f"{letter!r} in {thing}", f"has_{letter}"),
        ]
    )
    words = (*WORDS, "aster", "iris", "onions", "easel", "radar", "tea", "stoat", "solo")
    return f"{verb}_{thing}", thing, says, code, [(one,) for one in words]


KINDS = (
    compared, compared, between, calculated, calculated, with_constant, with_constant, with_default, divisible, cut, cut,
    chosen, summed, both, joined, joined, spelled, spelled,
)  # fmt: skip
"""Those that vary most, twice."""
