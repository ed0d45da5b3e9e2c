"""Which words a clue fits: our own table, made for this sample.

Some words fit two clues (a nail is of a tool and of a hand), as in the real game; the clue-giver
takes care that none of its clues fits a word that is not its own.
"""

FITS = {
    clue: words.split()
    for clue, words in {
        "animal": "dog cat horse cow sheep goat rabbit lion tiger bear wolf fox monkey elephant "
        "mouse snake frog duck pig deer bat",
        "fruit": "apple banana lemon cherry grape peach plum orange melon mango berry pear lime "
        "fig coconut olive",
        "body": "arm leg hand foot knee elbow shoulder neck finger toe nose ear mouth chest hip "
        "ankle skin lip nail",
        "clothes": "shirt coat dress hat glove sock shoe belt scarf jacket skirt boot sweater "
        "vest jeans cap",
        "weather": "rain snow wind storm cloud fog frost hail thunder lightning sunshine breeze "
        "mist hurricane",
        "music": "piano guitar drum violin flute trumpet song singer choir opera band melody "
        "rhythm concert",
        "tool": "hammer saw drill nail screw wrench shovel axe knife ladder rope chisel rake file",
        "vehicle": "car bus train truck bicycle boat ship plane tram taxi van helicopter scooter "
        "ferry",
        "family": "mother father sister brother uncle aunt cousin son daughter grandmother nephew "
        "niece wife husband",
        "sport": "football tennis golf hockey boxing rugby cricket baseball basketball skiing "
        "swimming soccer wrestling bat",
        "furniture": "table chair sofa bed desk shelf lamp couch bench cupboard drawer wardrobe "
        "stool carpet",
        "building": "house church castle tower hotel hospital palace temple barn cottage museum "
        "library prison factory",
        "job": "doctor teacher farmer lawyer nurse judge cook baker pilot soldier sailor tailor "
        "painter plumber singer",
        "school": "pencil lesson exam student homework class book teacher essay notebook library "
        "desk",
        "space": "moon star planet comet galaxy rocket orbit asteroid astronaut meteor telescope "
        "alien",
        "money": "coin bank dollar gold price wallet debt tax loan salary cash profit",
        "plant": "tree rose grass flower leaf bush seed oak pine tulip daisy moss fern weed ivy "
        "lily",
        "drink": "water milk tea coffee juice wine beer cocoa soda lemonade whisky rum",
        "color": "red blue green yellow purple brown black white pink gray orange rose gold",
    }.items()
}


def fits(clue, word):
    return word in FITS[clue]
