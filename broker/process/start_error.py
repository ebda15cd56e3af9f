"""What keeps a broker from starting."""


class StartError(Exception):
    """One line for the user: what is wrong, and where."""
