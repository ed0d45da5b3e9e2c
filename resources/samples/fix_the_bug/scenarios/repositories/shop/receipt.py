"""Receipts."""

from cart import total


def money(cents):
    """Amount as text with two digits after the point: 1205 is 12.05."""
    return f"{cents // 100}.{cents % 100:02}"


def receipt(cart):
    """Lines "quantity x name", then "total" with the price of the cart."""
    lines = [f"{quantity} x {name}" for name, _, quantity in cart if quantity > 0]
    return [*lines, "total " + money(total(cart))]
