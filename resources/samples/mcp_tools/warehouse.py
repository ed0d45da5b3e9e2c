"""The warehouse, as an MCP server over stdio: `python warehouse.py`. What is in it is made from a seed."""

import random

from mcp.server import MCPServer

SEED = 41
MATERIALS = "brass copper iron oak pine rubber steel tin".split()
THINGS = "bolts brackets handles hinges hooks nails pipes plates rings screws".split()
server = MCPServer("warehouse")


def shelves():
    """{item: (pieces, shelf, price in euros)}"""
    luck = random.Random(SEED)
    items = [f"{material} {thing}" for material in MATERIALS for thing in THINGS]
    return {
        item: (luck.randint(3, 999), f"{luck.choice('ABCDEF')}{luck.randint(1, 40)}", luck.randint(2, 95))
        for item in items
    }


STOCK = shelves()


def found(item):
    if item not in STOCK:
        raise ValueError(f"There are no {item}.")
    return STOCK[item]


@server.tool()
def stock(item: str) -> str:
    """How many pieces of an item there are."""
    return f"{found(item)[0]} pieces"


@server.tool()
def shelf(item: str) -> str:
    """On which shelf an item lies."""
    return f"shelf {found(item)[1]}"


@server.tool()
def price(item: str) -> str:
    """What one piece of an item costs."""
    return f"{found(item)[2]} euros"


if __name__ == "__main__":
    server.run()
