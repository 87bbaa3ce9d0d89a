"""The command's front door: which module has which verb, and what an error becomes.

Verbs are looked up in a table and their module is imported when one is called. A command that prints a list should be
there at once, and importing the local cluster, the YAML reader and the rest for it would double its start-up time.
"""

import difflib
import importlib
import importlib.metadata
import sys
from typing import Annotated, Any, Final

import typer
import typer.main
from typer.core import TyperGroup

# httpx imports its own command line with rich and pygments when they are installed, which doubles its import time;
# None is how Python marks a module as absent, and httpx is written to do without it.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]

VERBS: Final = {
    "up": "makeway.commands.cluster",
    "down": "makeway.commands.cluster",
    "submit": "makeway.commands.submit",
    "run": "makeway.commands.submit",
    "wait": "makeway.commands.follow",
    "logs": "makeway.commands.follow",
    "ps": "makeway.commands.jobs",
    "show": "makeway.commands.jobs",
    "why": "makeway.commands.why",
    "cancel": "makeway.commands.jobs",
    "priority": "makeway.commands.jobs",
    "change": "makeway.commands.jobs",
    "preempt": "makeway.commands.jobs",
    "resume": "makeway.commands.jobs",
    "status": "makeway.commands.overview",
    "preemptions": "makeway.commands.overview",
    "ack": "makeway.commands.ack",
    "doctor": "makeway.commands.doctor",
    "replay": "makeway.commands.replay",
    "export": "makeway.commands.export",
}
GROUPS: Final = {
    "node": "makeway.commands.node",
    "gpu": "makeway.commands.gpu",
    "team": "makeway.commands.team",
    "token": "makeway.commands.token",
    "policy": "makeway.commands.policy",
    "sim": "makeway.commands.sim",
}


_MEANT: Final = (
    ("makeway ps", ("list", "ls", "jobs", "job", "squeue", "qstat", "get")),
    ("makeway logs --follow JOB, or makeway wait JOB; makeway ps lists jobs", ("watch", "follow", "tail", "attach")),
    ("makeway show JOB", ("describe", "info", "inspect")),
    ("makeway cancel JOB", ("kill", "delete", "rm", "scancel", "qdel")),
    ("makeway submit", ("sbatch", "qsub", "launch", "create")),
    ("makeway node list", ("nodes", "sinfo")),
    ("makeway gpu list", ("gpus",)),
    ("makeway up", ("start",)),
    ("makeway down, or makeway cancel JOB", ("stop",)),
)
"""What other tools' words are here."""


class VerbTable(TyperGroup):
    """A command group that imports a verb's module when the verb is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*VERBS, *GROUPS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The verb's command, or None for an unknown verb."""
        if cmd_name in VERBS:
            module = importlib.import_module(VERBS[cmd_name])
            return typer.main.get_group(module.app).commands[cmd_name]
        if cmd_name in GROUPS:
            group = typer.main.get_group(importlib.import_module(GROUPS[cmd_name]).app)
            group.name = cmd_name
            return group
        return None

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The verb that is called. Raises UsageError, with the verb that may be meant, for a word that is none."""
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            ctx.fail(f"No such command {name!r}.{self._hint(ctx, name)}")
        return super().resolve_command(ctx, args)

    def _hint(self, ctx: Any, name: str) -> str:
        hint = next((f" Here it is {meant}." for meant, words in _MEANT if name in words), "")
        near = difflib.get_close_matches(name, self.list_commands(ctx), n=2)
        return hint or (f" Did you mean {' or '.join(map(repr, near))}?" if near else "")

    def invoke(self, ctx: Any) -> Any:
        """Runs the verb; what it raises on purpose becomes a sentence on stderr and an exit code."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            # Imported by the verb already; not wanted where `--help` or `--version` is all.
            code = importlib.import_module("makeway.commands.failures").exit_code(error)
            if code is None:
                raise
            raise typer.Exit(code) from error


def _version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"makeway {importlib.metadata.version('makeway')}\n")
        raise typer.Exit


app = typer.Typer(cls=VerbTable, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.callback(epilog="Exit codes, output and files: docs/cli.md. Each verb has --help.")
def root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    """makeway: urgent work gets a GPU at once; what is pushed aside resumes."""


def main() -> None:
    """Entry point of the ``makeway`` command."""
    app(prog_name="makeway")


if __name__ == "__main__":
    main()
