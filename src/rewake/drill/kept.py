"""A drill as data: everything that its page shows, so that the page can be made again."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rewake.drill.drill import Drill
from rewake.drill.run import DrillResult
from rewake.drill.summary import recoveries_of, summary
from rewake.drill.timeline import timeline
from rewake.graph.plan.plan import Plan
from rewake.recovery.approach import Approach
from rewake.report import Facts, Raw

KIND = "drill"


class Course(NamedTuple):
    """What pages show of a run: its blows, nodes and recoveries, and tables of what was sampled."""

    about: dict[str, Any]
    tables: dict[str, pa.Table]


def course_of(result: DrillResult) -> Course:
    """The course of a run; seconds count from its first result."""
    about = {
        "marks": [
            [round(blow.at - result.first_result_at, 3), f"{blow.action} {blow.node}"]
            for blow in result.blows
        ],
        "paced": result.origin_ms is not None,
        "nodes": _nodes(result.drill.build().plan()),
        "recoveries": recoveries_of(result),
    }
    sampled = result.nodes.table(result.first_result_at)
    return Course(about, {"timeline": _timeline(result), "nodes": sampled})


def raw_of(result: DrillResult, command: str, facts: Facts, title: str = "Drill") -> Raw:
    """What is kept of a drill: its summary, its course, and the query."""
    course = course_of(result)
    figures = summary(result)
    del figures["report"]
    about = {
        "title": f"{title}: {result.drill.name}",
        "figures": figures,
        "settings": _settings(result.drill),
        "query": result.drill.build().explain(),
    }
    return Raw(KIND, command, facts, about | course.about, course.tables)


def _timeline(result: DrillResult) -> pa.Table:
    """The course of a run; null where nothing was measured."""
    seen = timeline(result)._asdict()
    seconds = np.round(seen.pop("seconds"), 3)
    columns = {name: pa.array(values, mask=~np.isfinite(values)) for name, values in seen.items()}
    return pa.table({"seconds": seconds} | columns)


def _settings(drill: Drill) -> dict[str, Any]:
    """What the drill was asked for, as far as JSON can say it."""
    known: Any = drill
    names = [each.name for each in fields(known)] if is_dataclass(known) else []
    values = {name: getattr(drill, name) for name in names if name != "gun"}
    return {name: _plain(value) for name, value in values.items() if _plain(value) is not None}


def _plain(value: Any) -> str | float | None:
    if isinstance(value, str | int | float):
        return value
    return _approach(value) if hasattr(value, "keeper") else None


def _nodes(plan: Plan) -> list[dict[str, Any]]:
    """Each node with how it recovers, and its targets for what a crash may cost."""
    found = []
    for node in plan.nodes:
        settings = node.approach.settings()
        targets = {name: settings.get(name) for name in ("records", "tuples")}
        kept = not node.program.stateless
        found.append(
            {"node": node.name, "approach": _approach(node.approach), "state": kept, **targets}
        )
    return found


def _approach(approach: Approach) -> str:
    said = ", ".join(f"{name}={value}" for name, value in approach.settings().items())
    return f"{approach.name}({said})" if said else approach.name
