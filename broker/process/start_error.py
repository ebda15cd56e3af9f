"""What keeps a broker from starting."""


class StartError(Exception):
    """One line for the user: what is wrong, and where. The exit status is 2 where a setting is to be written
    otherwise, and 1 where a start may find it otherwise."""

    def __init__(self, message: str, exit_status: int = 1) -> None:
        super().__init__(message)
        self.exit_status = exit_status
