"""How many nodes a session can run, from its settings alone; no Spark is started."""

from typing import Any

import pytest

from rewake.spark.probe import Worker, together
from rewake.spark.session import session_settings
from rewake.spark.slots import TooFewSlots, check_slots, slots


class Settings:
    """A session that has nothing but settings, as one through Connect."""

    def __init__(self, **settings: str) -> None:
        self._settings = {f"spark.{name.replace('_', '.')}": settings[name] for name in settings}
        self.conf = self

    def get(self, name: str, default: str) -> str:
        return self._settings.get(name, default)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"master": "local"}, 1),
        ({"master": "local[4]"}, 4),
        ({"master": "local[8,1000]"}, 8),
        ({"master": "local[8, 1000]", "task_cpus": "2"}, 4),
        ({"master": "local-cluster[2,3,1024]"}, 6),
        ({"master": "local[*]"}, None),
        ({"master": "yarn", "executor_cores": "4", "executor_instances": "3"}, 12),
        ({"master": "yarn", "executor_cores": "4"}, None),
        ({"master": "spark://host:7077", "cores_max": "10"}, 10),
        ({"master": "k8s://host", "executor_cores": "2", "executor_instances": "1",
          "dynamicAllocation_enabled": "true", "dynamicAllocation_maxExecutors": "9"}, 18),
        ({"master": "k8s://host", "executor_cores": "2", "executor_instances": "1",
          "dynamicAllocation_enabled": "true"}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_slots_are_read_from_the_settings(settings: dict[str, str], expected: int | None) -> None:
    """None where they do not tell: then a probe counts."""
    session: Any = Settings(**settings)
    assert slots(session) == expected


def test_too_few_slots_say_how_to_get_more() -> None:
    """The remedy depends on where Spark runs."""
    local: Any = Settings(master="local[2]")
    with pytest.raises(TooFewSlots, match=r"4 servers .* 2 slots .*servers=2.*local\[6\]"):
        check_slots(local, 4, 2)
    cluster: Any = Settings(master="yarn")
    with pytest.raises(TooFewSlots, match=r"servers=2.*more executors or cores"):
        check_slots(cluster, 4, 2)
    check_slots(local, 2, 2)
    check_slots(local, 100, None)


def test_the_most_that_ran_at_once_are_counted() -> None:
    """Tasks that waited for a slot began after another had ended."""
    times = [(0.0, 1.0), (0.5, 1.5), (1.0, 2.0), (1.6, 2.0)]
    workers = [Worker("host", "3.11", "1", "", *each) for each in times]
    assert together(workers) == 2
    assert together([]) == 0


def test_a_session_for_nodes_lets_tasks_fail_often_and_preloads() -> None:
    """A slot for every node beside those for other work."""
    settings = session_settings(2, {}, nodes=3)
    assert settings["spark.master"] == "local[5,200]"
    assert settings["spark.python.daemon.module"] == "rewake.spark.daemon"
    assert settings["spark.speculation"] == "false"
    assert session_settings(2, {"spark.master": "local[9]"}, nodes=3)["spark.master"] == "local[9]"
    without = session_settings(2, {})
    assert without["spark.python.daemon.module"] == "rewake.spark.task_daemon"
