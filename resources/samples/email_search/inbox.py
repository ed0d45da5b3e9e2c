"""An inbox of some thousands of mails in SQLite, searched in full text (FTS5).

The mails are made from a seed, the same on every machine, when they are first asked for: `inbox.db` lies beside this
file and may be deleted at any time. A quarter of them hold a fact that somebody may ask for; the others are about the
same people and shops and hold none.
"""

import os
import random
import re
import sqlite3
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
FILE = HERE / "inbox.db"
SEED = 2027
FACTS, OTHERS = 800, 2400
SHOWN = 3
"""Mails that a search lists."""

FIRST = "Ada Ben Cleo Dan Eva Finn Gita Hugo Ines Jan Kaya Leo Mona Nils Olga Piet Rosa Sven Tara Udo Vera Yann".split()
LAST = "Abel Brandt Costa Duval Engel Falk Garcia Hansen Ito Jansen Keller Lund Moreau Novak Olsen Peters".split()
ADJECTIVES = "Amber Blue Copper Delta Evergreen Falcon Golden Harbor Iron Jade Kestrel Lunar Maple North Orchid".split()
NOUNS = "Books Bikes Tools Garden Kitchen Lamps Music Optics Paper Shoes Tea Toys Travel Watches Wool".split()
CITIES = (
    "Athens Berlin Cairo Dublin Essen Florence Geneva Helsinki Izmir Jakarta Kyoto Lisbon Madrid Nairobi Oslo Prague Quito "
    "Riga Seville Tunis Utrecht Vienna Warsaw Zurich Bergen Calgary Dakar Edinburgh Fresno Ghent"
).split()
TOPICS = (
    "audit budget brochure catering claims contracts data design energy exhibition fire-drill forecast furniture grants hiring "
    "insurance inventory kitchen launch lighting logo mailing newsletter office parking payroll pensions pricing privacy "
    "quality recycling refunds roadmap safety sales security servers shipping signage software staffing storage survey taxes "
    "training travel uniforms vacation vendors website"
).split()
MONTHS = "January February March April May June July August September October November December".split()
PLACES = ("kiosk", "station", "market", "library", "post office")
MOST_WORDS = 6
"""Of an answer."""


def inbox():
    """An open connection to the whole inbox, which is made where it is not there yet. Several may ask at once: each
    makes one of its own, and they are all the same."""
    if not FILE.exists():
        handle, scratch = tempfile.mkstemp(dir=HERE, prefix=".inbox-", suffix=".db")
        os.close(handle)
        write(scratch, mails())
        Path(scratch).replace(FILE)
    return sqlite3.connect(f"file:{FILE}?mode=ro", uri=True)


def write(file, rows):
    database = sqlite3.connect(file)
    with database:
        database.execute("CREATE VIRTUAL TABLE mails USING fts5(sender, subject, body, day UNINDEXED)")
        values = [(n, m["sender"], m["subject"], m["body"], m["day"]) for n, m in enumerate(rows, 1)]
        database.executemany("INSERT INTO mails(rowid, sender, subject, body, day) VALUES (?, ?, ?, ?, ?)", values)
    database.close()


def search(database, words):
    """[(id, subject)] of the mails that fit best, by BM25; any of the words may be in them."""
    terms = ["".join(c for c in word if c.isalnum()) for word in words.split()]
    query = " OR ".join(f'"{term}"' for term in terms if term)
    if not query:
        return []
    sql = "SELECT rowid, subject FROM mails WHERE mails MATCH ? ORDER BY bm25(mails, 1, 2, 1), rowid LIMIT ?"
    return database.execute(sql, (query, SHOWN)).fetchall()


def read(database, number):
    """Sender, subject, day and text of a mail; None where there is none."""
    sql = "SELECT sender, subject, day, body FROM mails WHERE rowid = ?"
    return database.execute(sql, (number,)).fetchone()


def is_right(said, answer):
    """Whether a few words hold the answer, whole, and nothing else that could be one."""
    rest, found = re.subn(rf"(?<![\w:]){re.escape(answer)}(?![\w:])", " ", said, flags=re.IGNORECASE)
    others = re.search(r"\d", rest) or any(place in rest.lower() for place in PLACES)
    return found > 0 and not others and len(said.split()) <= MOST_WORDS


def mails():
    """All of them, shuffled; those with a fact have `question` and `answer`."""
    luck = random.Random(SEED)
    found = facts(luck)
    shops = sorted({one["about"] for one in found if one["kind"] in ("invoice", "parcel")})
    people = [f"{first} {last}" for first in FIRST for last in LAST]
    found += [other(luck, shops, people) for _ in range(OTHERS)]
    luck.shuffle(found)
    return found


def facts(luck):
    """One mail for each shop, flight and meeting, so that a question has one answer."""
    shops = [f"{one} {two}" for one in ADJECTIVES for two in NOUNS]
    luck.shuffle(shops)
    made = [invoice(luck, shop) for shop in shops[:200]]
    made += [parcel(luck, shop) for shop in shops[25:225]]
    made += [flight(luck, city, day) for city in CITIES for day in luck.sample(MONTHS, 7)]
    people = [f"{first} {last}" for first in FIRST for last in LAST]
    pairs = [(topic, person) for topic in TOPICS for person in luck.sample(people, 4)]
    made += [meeting(luck, topic, person) for topic, person in pairs]
    luck.shuffle(made)
    return made[:FACTS]


def invoice(luck, shop):
    amount, day = luck.randint(11, 989), date(luck)
    if luck.random() < 0.5:
        question, answer = f"How much is the invoice of {shop}?", str(amount)
    else:
        question, answer = f"By when must the invoice of {shop} be paid?", day
    body = f"Thank you for your order. The total is {amount} euros. Please pay by {day}. Kind regards, {shop}"
    return mail(luck, shop, f"Your invoice from {shop}", body, question, answer, "invoice", shop)


def parcel(luck, shop):
    code, place = luck.randint(1000, 9999), luck.choice(PLACES)
    if luck.random() < 0.5:
        question, answer = f"What is the code of my parcel from {shop}?", str(code)
    else:
        question, answer = f"Where is my parcel from {shop}?", place
    body = f"Your parcel waits at the {place}. The code is {code}. It is kept for seven days."
    return mail(luck, shop, f"Your parcel from {shop}", body, question, answer, "parcel", shop)


def flight(luck, city, month):
    hour, gate = f"{luck.randint(6, 22)}:{luck.choice(('05', '20', '35', '50'))}", f"{luck.choice('ABCD')}{luck.randint(2, 48)}"
    if luck.random() < 0.5:
        question, answer = f"When does my flight to {city} in {month} leave?", hour
    else:
        question, answer = f"From which gate is my flight to {city} in {month}?", gate
    body = f"Your flight to {city} on {luck.randint(1, 28)} {month} leaves at {hour} from gate {gate}. Have a good trip."
    return mail(luck, "Skyline Air", f"Flight to {city}, {month}", body, question, answer, "flight", city)


def meeting(luck, topic, person):
    room, hour = str(luck.randint(101, 499)), f"{luck.randint(8, 17)}:{luck.choice(('00', '15', '30', '45'))}"
    if luck.random() < 0.5:
        question, answer = f"In which room do I meet {person} about {topic}?", room
    else:
        question, answer = f"When do I meet {person} about {topic}?", hour
    body = f"Let us talk about {topic} at {hour} in room {room}. Bring what you have. {person}"
    return mail(luck, person, f"Meeting about {topic}", body, question, answer, "meeting", person)


def other(luck, shops, people):
    """About the same, and without an answer."""
    shop, person, topic = luck.choice(shops), luck.choice(people), luck.choice(TOPICS)
    subject, body, sender = luck.choice(
        (
            (f"News from {shop}", f"New things have come in at {shop}, and old ones went. See you soon.", shop),
            (f"How was {shop}?", f"Tell others how you like {shop}. It takes two minutes.", shop),
            (f"{topic.capitalize()} again", f"I have thought about {topic} once more. Let us wait. {person}", person),
            (f"Re: {topic}", f"Fine with me. Thank you for the words about {topic}. {person}", person),
            (f"A photo from {luck.choice(CITIES)}", f"We are having a good time here. {person}", person),
        )
    )
    return mail(luck, sender, subject, body)


def mail(luck, sender, subject, body, question="", answer="", kind="other", about=""):
    return {
        "sender": sender,
        "subject": subject,
        "body": body,
        "day": date(luck),
        "question": question,
        "answer": answer,
        "kind": kind,
        "about": about,
    }


def date(luck):
    return f"{luck.randint(1, 28)} {luck.choice(MONTHS)}"
