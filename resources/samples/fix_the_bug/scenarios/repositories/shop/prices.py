"""Prices of goods, in cents."""


def with_tax(price, percent=20):
    """Price with tax of so many percent (20 by default), rounded down."""
    return price + price * percent // 100


def discount(quantity):
    """Discount in percent: 10 from 10 pieces on, 5 from 5 pieces on, otherwise 0."""
    if quantity >= 10:
        return 10
    if quantity >= 5:
        return 5
    return 0


def line_price(price, quantity):
    """Price of several pieces after the discount, rounded down."""
    full = price * quantity
    return full - full * discount(quantity) // 100
