"""Numbers of things in words, wherever people read them."""


def quantity(number: float, noun: str) -> str:
    """`1 GPU`, `2 GPUs`, `0.5 GPUs`: only exactly one is a single one."""
    return f"{number:g} {plural(number, noun)}" if isinstance(number, float) else f"{number} {plural(number, noun)}"


def plural(number: float, noun: str) -> str:
    """The noun alone as it goes with the number."""
    return noun if number == 1 else f"{noun}s"


def verb(number: float, one: str = "is", many: str = "are") -> str:
    """The verb as it goes with the number."""
    return one if number == 1 else many
