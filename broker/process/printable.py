"""Text from outside on one line, with nothing in it that does something to the terminal of whoever reads it."""


def printable(text: str) -> str:
    """The text on one line: what can't be printed (line ends, escapes, bidirectional marks, stray surrogates) is
    written as Python writes it, such as `\\n`."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
