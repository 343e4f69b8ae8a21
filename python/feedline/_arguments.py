"""Checks of arguments, so that a wrong one is an Error that says what was found, what was wanted and what to do."""

import operator

from ._errors import Error


def _refuse(name, value, wanted, advice):
    raise Error(f"{name}: {value!r} is {wanted}" + (f"; {advice}" if advice else ""))


def integer(name, value, among=None, advice=""):
    """Returns an integer of any type, numpy's too, as an int. `among` is the range that it must be in."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or (among is not None and number not in among):
        bounds = "" if among is None else f" from {among[0]} to {among[-1]}"
        _refuse(name, value, f"not an integer{bounds}", advice)
    return number


def number(name, value, advice=""):
    """Returns a number of any type as a float."""
    try:
        if not isinstance(value, (bool, str)):
            return float(value)
    except (AttributeError, TypeError, ValueError, OverflowError):
        pass
    _refuse(name, value, "not a number", advice)


def flag(name, value, or_none=False):
    """Returns True or False; if `or_none`, also None."""
    if isinstance(value, bool) or (or_none and value is None):
        return value
    _refuse(name, value, "not True, False or None" if or_none else "neither True nor False", "")


def string(name, value, advice=""):
    """Returns a str."""
    if isinstance(value, str):
        return value
    _refuse(name, value, "not a string", advice)


def secret(name, value):
    """Returns a str, or "" for None. The error does not show the value."""
    if value is None or isinstance(value, str):
        return value or ""
    raise Error(f"{name}: the value is of type {type(value).__name__}; give a string")


def one_of(name, value, *choices):
    """Returns one of the choices."""
    if value in choices:
        return value
    _refuse(name, value, f"not one of {', '.join(map(repr, choices))}", "")
