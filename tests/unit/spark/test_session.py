"""How a local session is set up, without starting one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rewake.model.errors import UsageError
from rewake.spark import FAST_PYTHON, MissingRequirement, local_session, session
from rewake.spark.java import Java
from rewake.spark.session import launch_environment, session_settings


def test_a_session_listens_on_loopback_alone_and_serves_no_page() -> None:
    """Nothing of a local session is reachable from another machine."""
    settings = session_settings(3, {})
    assert settings["spark.master"] == "local[3]"
    assert settings["spark.driver.host"] == "127.0.0.1"
    assert settings["spark.driver.bindAddress"] == "127.0.0.1"
    assert settings["spark.ui.enabled"] == "false"


def test_the_callers_settings_win_and_java_options_are_joined() -> None:
    """Someone who asks for the web page gets it; their Java options do not undo the quiet log."""
    conf = {"spark.ui.enabled": "true", "spark.driver.extraJavaOptions": "-Xss4m"}
    settings = session_settings(1, conf)
    assert settings["spark.ui.enabled"] == "true"
    options = settings["spark.driver.extraJavaOptions"].split()
    assert options[0].startswith("-Dlog4j2.configurationFile=file:")
    assert options[1:] == ["-Xss4m"]


def test_workers_run_this_interpreter_and_connect_settings_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, workers take the python3 of PATH, which lacks the packages."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    variables = launch_environment(Java(Path("/java"), "17", 17, "PATH"))
    assert variables["PYSPARK_PYTHON"] == sys.executable
    assert variables["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert variables["SPARK_REMOTE"] is None
    assert str(variables["JAVA_HOME"]).startswith(str(tmp_path))


def test_the_environment_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library leaves its user's environment as it was, also after a failure."""
    monkeypatch.setenv("MASTER", "yarn")
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    before = dict(os.environ)

    def start_and_fail() -> None:
        with session.environment_with({"MASTER": None, "SPARK_LOCAL_IP": "127.0.0.1"}):
            assert "MASTER" not in os.environ
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        start_and_fail()
    assert dict(os.environ) == before


def test_without_pyspark_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """The remedy is a command."""
    monkeypatch.setattr(session, "find_spec", lambda _: None)
    with pytest.raises(MissingRequirement, match=r"pip install 'rewake\[spark\]'"):
        local_session()


def test_fewer_than_one_core_is_refused() -> None:
    """Spark would accept local[0] and then hang."""
    with pytest.raises(UsageError, match="cores is 0"):
        local_session(cores=0)


def test_importing_the_package_imports_no_pyspark() -> None:
    """The core and the command line work on machines without Spark."""
    code = "import sys, rewake.spark; sys.exit('pyspark' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_sockets_of_python_workers_are_in_a_folder_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else may look into it; where its path is too long for a socket, there are none."""
    monkeypatch.setattr(session.tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", "/tmp")
    (folder,) = session.socket_settings().values()
    assert Path(folder).stat().st_mode & 0o777 == 0o700
    Path(folder).rmdir()
    deep = tmp_path / ("deep" * 20)
    deep.mkdir()
    monkeypatch.setattr(session.tempfile, "tempdir", str(deep))
    found = session_settings(1, {}, sockets=session.socket_settings())
    assert found["spark.python.unix.domain.socket.enabled"] == "false"


def test_a_session_has_what_makes_python_fast_unless_the_caller_says_otherwise() -> None:
    """What a program asks for is never overridden."""
    limit = "spark.sql.execution.arrow.maxBytesPerBatch"
    assert FAST_PYTHON.items() <= session_settings(1, {}).items()
    assert session_settings(1, {limit: "1m"})[limit] == "1m"
