"""Puts text from outside on one line, without anything that acts on the reader's terminal."""


def printable(text: str) -> str:
    """The text on one line. Characters that can't be printed (line ends, escapes, bidirectional marks, stray
    surrogates) are written as Python's escapes, such as `\\n`."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
