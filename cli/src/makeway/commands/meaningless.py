"""Options that mean nothing beside others: refused where they are given, as whoever gives one expects it to count."""

from collections.abc import Collection

import typer


def refuse_given(context: typer.Context, names: Collection[str], why: str) -> None:
    """Raises BadParameter with every option, of the parameters of these names, that stands on the command line."""
    given = [
        max(parameter.opts, key=len)
        for parameter in context.command.params
        if parameter.name is not None and parameter.name in names and is_given(context, parameter.name)
    ]
    if given:
        raise typer.BadParameter(f"means nothing {why}", ctx=context, param_hint=", ".join(given))


def is_given(context: typer.Context, name: str) -> bool:
    """Whether the option stands on the command line, and is not only there by its default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
