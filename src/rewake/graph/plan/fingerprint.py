"""The fingerprint of a query: a hash of everything that decides its results.

A folder that holds the logs of one query must not be continued by another.  What is in here is
thus what a log means: steps, expressions, windows, approaches, shards, schemas, and which fragments
they form.  What only affects speed or looks is not.  Neither is the place of a sink that says
itself whose it is (`BindingSink`): it may be elsewhere tomorrow.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pyarrow as pa

from rewake.graph.plan.fragments import Fragment
from rewake.graph.steps import Graph, Port, Step
from rewake.model.connectors import BindingSink, Sink
from rewake.model.errors import UsageError
from rewake.operators.expressions.expression import function_identity
from rewake.operators.stateful import StatefulSpec
from rewake.recovery.approach import Approach

_VERSION = 2


def fingerprint(graph: Graph, fragments: tuple[Fragment, ...], *, with_places: bool = False) -> str:
    """The fingerprint as hexadecimal text.

    `with_places` gives that of versions in which it counted where every sink writes.
    """
    described = {
        "version": _VERSION,
        "query": graph.query,
        "steps": [_step(step, with_places) for step in graph.steps],
        "fragments": [
            {
                "name": each.name,
                "steps": [step.name for step in each.steps],
                "approach": _approach(each.approach),
            }
            for each in fragments
        ],
        "loops": {loop.name: _port(port) for loop, port in graph.loops.items()},
        "streams": {name: _port(port) for name, port in graph.streams.items()},
    }
    text = json.dumps(described, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _step(step: Step, with_places: bool) -> dict[str, Any]:
    return {
        "name": step.name,
        "kind": str(step.kind),
        "inputs": [_port(port) for port in step.inputs],
        "schema": _schema(step.schema),
        "shards": step.shards,
        "further": [name for name, _ in step.further],
        "partition_by": list(step.partition_by or ()),
        "computes": [[column, computed.identity()] for column, computed in step.computes],
        "state": None if step.spec is None else _spec(step.spec),
        "source": _description(step, step.source, "describe"),
        "sink": _description(step, step.sink, "describe" if with_places else _telling(step.sink)),
    }


def _port(port: Port) -> list[Any]:
    return [port.step.name, port.port]


def _schema(schema: pa.Schema) -> list[list[Any]]:
    return [[each.name, str(each.type), each.nullable] for each in schema]


def _approach(approach: Approach) -> dict[str, Any]:
    return {"name": approach.name, "settings": approach.settings()}


def _spec(spec: StatefulSpec) -> dict[str, Any]:
    # A description keeps only the names of a user's functions; here their code counts.
    code = [function_identity(each) for each in spec.code()]
    return {"kind": spec.kind, "spec": spec.describe(), "code": code}


def _telling(sink: Sink | None) -> str:
    return "identity" if isinstance(sink, BindingSink) else "describe"


def _description(step: Step, connector: Any, telling: str) -> Any:
    """What a source or sink says of itself, checked apart so that an error names it."""
    if connector is None:
        return None
    try:
        return json.loads(json.dumps(getattr(connector, telling)(), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"step {step.name!r}: {telling}() of {type(connector).__name__} must give JSON values "
            f"({error})"
        ) from error
