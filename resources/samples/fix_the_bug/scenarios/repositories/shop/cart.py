"""Carts: lists of [name, price in cents, quantity]."""

from prices import line_price, with_tax


def total(cart):
    """Price of everything in the cart after discounts, with tax."""
    return with_tax(sum(line_price(price, quantity) for _, price, quantity in cart))


def dearest(cart):
    """Name of the line that costs most, "" for an empty cart; the first one of equals."""
    if not cart:
        return ""
    best = cart[0]
    for line in cart[1:]:
        if line_price(line[1], line[2]) > line_price(best[1], best[2]):
            best = line
    return best[0]
