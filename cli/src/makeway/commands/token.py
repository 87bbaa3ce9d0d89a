"""``token``: who may come in."""

from typing import Annotated

import typer
from makeway_schemas.api import TokenRequest, TokenView
from pydantic import ValidationError

from makeway.commands.options import Output, State, connect, duration
from makeway.documents.problems import sentence_of
from makeway.errors import SpecInvalid, SpecProblem
from makeway.output import OutputFormat, local_time, print_json, print_out, print_table, say

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)

Duration = Annotated[
    float | None,
    typer.Option(
        parser=duration, metavar="DURATION", help="Valid for so long; never longer than the token that makes it."
    ),
]


@app.callback()
def token() -> None:
    """Tokens: roles, teams and classes of whoever calls the API."""


@app.command()
def create(
    role: Annotated[str, typer.Option(help="viewer, submitter, admin or node.")] = "submitter",
    team: Annotated[str | None, typer.Option(help="The team it acts for.")] = None,
    node: Annotated[str | None, typer.Option(help="The node, for the role node.")] = None,
    class_name: Annotated[
        list[str] | None, typer.Option("--class", help="A class it may submit to; default: all.")
    ] = None,
    label: Annotated[str, typer.Option(help="A note on what it is for.")] = "",
    expires: Duration = None,
    output: Output = OutputFormat.TEXT,
    state_dir: State = None,
) -> None:
    """Create a token and print it, alone, on stdout. It is shown this once."""
    values = {"role": role.lower(), "team": team, "node": node, "label": label, "expires_in_seconds": expires}
    try:
        request = TokenRequest.model_validate({**values, "classes": tuple(class_name) if class_name else None})
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False)
        problems = (SpecProblem(field=str(d["loc"][0]), message=sentence_of(d["type"], d["msg"])) for d in details)
        raise SpecInvalid(tuple(problems)) from error
    client = connect(state_dir)
    with client:
        created = client.create_token(request)
    if output is OutputFormat.JSON:
        print_json(created)
        return
    print_out(created.token)
    say(f"token {created.token_id} ({created.role}); it is not shown again. Use it as MAKEWAY_TOKEN.")
    if created.expires_at is not None:
        say(f"it expires at {local_time(created.expires_at)}")


@app.command("list")
def list_tokens(output: Output = OutputFormat.TEXT, state_dir: State = None) -> None:
    """List tokens; their secrets are not kept anywhere."""
    client = connect(state_dir)
    with client:
        tokens = client.tokens()
    if output is OutputFormat.JSON:
        print_json(tokens)
        return
    print_table(("ID", "ROLE", "TEAM", "NODE", "CLASSES", "CREATED", "EXPIRES", "REVOKED", "LABEL"), map(_row, tokens))


@app.command()
def revoke(
    token_id: Annotated[str, typer.Argument(help="Its id, as `token list` shows it.")], state_dir: State = None
) -> None:
    """Revoke a token at once."""
    client = connect(state_dir)
    with client:
        client.revoke_token(token_id)
    say(f"token {token_id} opens nothing any more")


def _row(token: TokenView) -> tuple[str, ...]:
    return (
        token.token_id,
        token.role,
        token.team or "-",
        token.node or "-",
        "all" if token.classes is None else ",".join(token.classes) or "none",
        local_time(token.created_at),
        local_time(token.expires_at) or "never",
        local_time(token.revoked_at) or "-",
        token.label,
    )
