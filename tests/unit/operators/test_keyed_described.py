"""Keyed processing in a request: all but the code, which is named."""

import sys

import pyarrow as pa
import pytest

from rewake.model.errors import UsageError
from rewake.net.shards.state import Description, imported
from rewake.operators.keyed.described import function_path, process_from_json, process_to_json
from rewake.operators.keyed.operator import ProcessSpec
from rewake.operators.keyed.state import state_fields

SCHEMA = pa.schema([("k", pa.string()), ("t", pa.timestamp("us", "UTC"))])
STATE = {"seen": (pa.list_(pa.int64()), [1, 2]), "at": pa.timestamp("ms"), "n": (pa.int8(), 3)}


def count(key, tuples, state):
    """A function that can be found by name."""
    return [], state


class Rules:
    """A place for functions."""

    @staticmethod
    def later(_key, _time, state):
        """Another one."""
        return [], state


def spec(function=count, on_timer=Rules.later, **rest):
    return ProcessSpec(
        function,
        ("k",),
        state_fields(STATE),
        pa.schema([("k", pa.string())]),
        time="t",
        slack="5s",
        each_key=True,
        on_timer=on_timer,
        **rest,
    )


def test_what_was_described_is_built_again_with_the_functions_by_name():
    """Types and first values of states among it, which JSON has no words for."""
    described = process_to_json(spec(null_keys="refuse"))
    again = process_from_json(described, imported)
    assert again == spec(null_keys="refuse")
    assert process_to_json(again) == described


def test_a_spec_without_state_travels_too():
    """Then there is no row to hold what a new key has."""
    bare = ProcessSpec(count, ("k",), (), pa.schema([("k", pa.string())]), each_key=True)
    assert process_from_json(process_to_json(bare), imported) == bare


def test_functions_that_have_no_place_of_their_own_are_refused():
    """Lambdas, functions of functions, and what the program itself holds."""
    with pytest.raises(UsageError, match="at the top of a module"):
        function_path(lambda _key, _tuples, state: ([], state))
    outside = type(count)(count.__code__, {"__name__": "__main__"}, "count")
    with pytest.raises(UsageError, match="put it in a module beside it"):
        function_path(outside)


def test_a_function_that_is_not_there_is_named():
    """What to do about it is said as well."""
    with pytest.raises(UsageError, match=r"'nowhere:f' cannot be imported .* --py-files"):
        imported("nowhere:f")
    with pytest.raises(UsageError, match="no attribute 'missing'"):
        imported(f"{__name__}:missing")
    with pytest.raises(UsageError, match="is not a function"):
        imported("sys:path")
    assert sys.path


def test_a_description_that_is_none_is_refused():
    """As one from a newer version may be."""
    described = process_to_json(spec())
    for wrong in ({"state": "?"}, {"output": ""}, {"by": 3}):
        with pytest.raises(UsageError, match="newer version"):
            process_from_json(described | wrong, imported)
    del described["slack"]
    with pytest.raises(UsageError, match="newer version"):
        process_from_json(described, imported)


def test_a_host_builds_the_operator_from_a_request():
    """And keeps all columns: nobody knows which of them the function reads."""
    made = Description(process_to_json(spec()), SCHEMA, ("t",), 2)
    assert made.rows_schema == SCHEMA
    assert made.build().output_schema == pa.schema([("k", pa.string())])
    assert made.identity["columns"] == [["k", "string"], ["t", "timestamp[us, tz=UTC]"]]
