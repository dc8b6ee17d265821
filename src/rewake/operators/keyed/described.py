"""Keyed processing as JSON values, for hosts that must build it from a request.

    {"kind": "process", "function": "fraud:watch", "on_timer": null, "by": ["card"],
     "state": "<Arrow: one row, what a new key holds>", "output": "<Arrow: a schema>", ...}

Functions are named, never carried: whoever builds the operator imports them, from the same program.
So they must be had by name: those of a module, not of another function, a notebook or a script.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from rewake.model.errors import UsageError
from rewake.operators.keyed.operator import ProcessSpec
from rewake.operators.keyed.state import StateField

__all__ = ["Load", "function_path", "process_from_json", "process_to_json", "state_of"]

# What finds a function by "module:name".
Load = Callable[[str], Callable[..., Any]]

_PLAIN = ("time", "slack", "each_key", "null_keys")
# What is left out where it is as it mostly is.
_SELDOM = {"on_error": "stop", "route_late": False}


def function_path(function: Callable[..., Any]) -> str:
    """Where a function is found again, as "module:name"."""
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", "")
    if not module or not name or "<" in name:
        raise UsageError(
            f"{name or function!r} cannot be found by name, and functions do not travel: define it "
            "with def at the top of a module that the executors can import"
        )
    if module == "__main__":
        raise UsageError(
            f"function {name!r} is in the program itself, which no other process can import: put "
            "it in a module beside it (and give that to Spark with --py-files)"
        )
    return f"{module}:{name}"


def process_to_json(spec: ProcessSpec) -> dict[str, Any]:
    """All it takes to build the operator where the functions can be imported."""
    return {
        "kind": spec.kind,
        "function": function_path(spec.function),
        "on_timer": None if spec.on_timer is None else function_path(spec.on_timer),
        "by": list(spec.by),
        "state": _encoded(_new_key(spec)),
        "output": b64encode(spec.output.serialize().to_pybytes()).decode(),
        **{name: getattr(spec, name) for name in _PLAIN},
        **{name: value for name in _SELDOM if (value := getattr(spec, name)) != _SELDOM[name]},
    }


def process_from_json(described: Mapping[str, Any], load: Load) -> ProcessSpec:
    """The spec that was described, with the functions that `load` finds."""
    try:
        on_timer = described["on_timer"]
        return ProcessSpec(
            function=load(described["function"]),
            by=tuple(described["by"]),
            state=state_of(described["state"]),
            output=pa.ipc.read_schema(pa.py_buffer(b64decode(described["output"]))),
            on_timer=None if on_timer is None else load(on_timer),
            **{name: described[name] for name in _PLAIN},
            **{name: described[name] for name in _SELDOM if name in described},
        )
    except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
        raise UsageError(
            f"this does not describe keyed processing ({type(error).__name__}: {error}); it may "
            "come from a newer version"
        ) from error


def _new_key(spec: ProcessSpec) -> pa.RecordBatch:
    """One row: the state of a key that is new."""
    arrays = [pa.array([each.default], each.kind) for each in spec.state]
    return pa.RecordBatch.from_arrays(arrays, schema=spec.state_schema)


def _encoded(batch: pa.RecordBatch) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return b64encode(sink.getvalue().to_pybytes()).decode()


def state_of(encoded: str) -> tuple[StateField, ...]:
    """The columns of the state that was described."""
    with pa.ipc.open_stream(pa.py_buffer(b64decode(encoded))) as reader:
        table = reader.read_all()
    return tuple(
        StateField(each.name, each.type, table.column(each.name)[0].as_py())
        for each in table.schema
    )
