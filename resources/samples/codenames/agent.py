"""Guesses in Codenames: words on a table and a clue go in, one of the words comes out.

A scenario is the words on the table, the clues in the order in which they are given, each with the
words it means, and the assassin. Each clue allows as many guesses as it means words; a guess that
is not ours ends its turn, and the next clue is given. The reward is the share of our words that
were found; whoever says the assassin has lost, and gets 0.
"""

import openai

SYSTEM = "Answer with one word from the list."


async def rollout(scenario, model):
    game = Game(scenario)
    messages = [{"role": "system", "content": SYSTEM}]
    async with openai.AsyncOpenAI(base_url=model.base_url, api_key=model.api_key) as client:
        while not game.over:
            messages.append({"role": "user", "content": game.show()})
            answer = await client.chat.completions.create(
                model=model.name, messages=messages, max_completion_tokens=5
            )
            said = answer.choices[0].message.content or ""
            messages.append({"role": "assistant", "content": said})
            game.guess(said)
    return {
        "reward": game.reward,
        "metrics": {
            "assassin": float(game.lost),
            "on_table": game.on_table / game.guesses,
            "found": len(game.found) / len(game.ours),
        },
    }


class Game:
    """One table: `show` it, `guess` a word, until it is `over`."""

    def __init__(self, scenario):
        self.table, self.assassin = list(scenario["table"]), scenario["assassin"]
        self.clues = list(scenario["clues"])
        self.ours = {word for clue in self.clues for word in clue["means"]}
        self.found = set()
        self.lost = False
        self.guesses = self.on_table = 0
        self.left = self.meant()
        self.said = "\n".join(self.table)

    @property
    def over(self):
        return self.lost or not self.clues

    @property
    def reward(self):
        return 0.0 if self.lost else len(self.found) / len(self.ours)

    def meant(self):
        """How many words of the present clue still lie on the table."""
        return len(set(self.clues[0]["means"]) - self.found)

    def show(self):
        """First the table, one word a line; later how the guess was; then the clue as a question."""
        which = "Which other word" if self.said == "Yes." else "Which of these words"
        between = "\n" if not self.guesses else " "
        return f"{self.said}{between}{which} is about {self.clues[0]['word']}?"

    def guess(self, said):
        """Take the word from the table; what is not ours, or does not lie there, ends the turn."""
        word = said.strip().lower().rstrip(".")
        self.guesses += 1
        ours = word in self.ours - self.found
        if word in self.table:
            self.on_table += 1
            self.table.remove(word)
        self.lost = word == self.assassin
        self.found |= {word} & self.ours
        self.said = "Yes." if ours else "No."
        self.left = self.left - 1 if ours else 0
        if not self.left:
            self.next_clue()

    def next_clue(self):
        """The next one that means a word which was not found."""
        self.clues.pop(0)
        while self.clues and not self.meant():
            self.clues.pop(0)
        self.left = self.meant() if self.clues else 0
