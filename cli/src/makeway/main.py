"""The command."""


def main() -> None:
    """Entry point."""
