"""What survives the driver, as bytes: which query, and per node its epoch and its log.

    {"query": ..., "fingerprint": ..., "places_left_out": true, "sinks": [node],
     "epochs": {node: epoch}, "logs": {node: [id, epoch, frames, tag]},
     "bookmarks": {node: [number, ...]}, "order": [node, ...]}

An epoch is what fences writers and tells copies of a log apart, and a bookmark all that is left of
a node: one that was changed must not be believed.  So the file has a checksum, and numbers that no
coordinator gives are refused.

`bookmarks` are those of nodes whose input is kept upstream (`rewake.recovery.bookmark`), if there
are any; `order` then names all nodes, each behind those that it reads.

`places_left_out` says that the fingerprint is one in which it does not count where sinks write.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rewake.graph.plan.plan import Plan
from rewake.log.files.layout import MAX_COUNT
from rewake.log.files.sealed import sealed, unsealed
from rewake.model.errors import DamagedData, UsageError
from rewake.recovery.bookmark import bookmark_of

STATE_FILE = "coordinator.json"
_REMEDY = (
    "bring the query's folder back as it was at one time (`rewake restore`), or start the query "
    "in a new folder"
)


def encode_state(state: dict[str, Any]) -> bytes:
    """The bytes of the file."""
    return sealed(state)


def decode_state(data: bytes) -> dict[str, Any]:
    """The state in a file; DamagedData when it is not what was written."""
    state = unsealed(data, STATE_FILE, _REMEDY)
    epochs, logs = state.get("epochs"), state.get("logs")
    bookmarks, order = state.get("bookmarks", {}), state.get("order", [])
    right = (
        isinstance(state.get("query"), str)
        and isinstance(state.get("fingerprint"), str)
        and isinstance(state.get("sinks"), list)
        and isinstance(epochs, dict)
        and isinstance(logs, dict)
        and all(_is_count(epoch) for epoch in epochs.values())
        and all(_is_record(record) for record in logs.values())
        and logs.keys() <= epochs.keys()
        and isinstance(bookmarks, dict)
        and all(_is_bookmark(each) for each in bookmarks.values())
        and bookmarks.keys() <= epochs.keys()
        and isinstance(order, list)
        and (not bookmarks or set(order) == epochs.keys())
    )
    if not right:
        raise DamagedData(f"{STATE_FILE} is damaged (it states impossible numbers); {_REMEDY}")
    return state


def check_folder(plan: Plan, state: Mapping[str, Any], folder: str = "") -> None:
    """Raise UsageError unless the state is that of this query."""
    begun = state.get("fingerprint")
    if plan.begun_as(begun):
        return
    moved = ""
    if plan.former_fingerprint not in ("", plan.fingerprint) and not state.get("places_left_out"):
        moved = (
            ". If only where a file sink writes has changed: this folder was made by an earlier "
            "version, for which that counts; start the query once with the sink where it was, and "
            "from then on it may be anywhere"
        )
    raise UsageError(
        f"{folder or 'the folder'} holds the state of another query ({state.get('query')!r}, "
        f"{str(begun)[:12]}), not of {plan.query!r} as it is now ({plan.fingerprint[:12]}); use "
        f"another folder, or the query that began here{moved}"
    )


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= MAX_COUNT


def _is_bookmark(value: object) -> bool:
    try:
        bookmark_of(value)
    except ValueError:
        return False
    return True


def _is_record(value: object) -> bool:
    if type(value) is not list or len(value) != 4:
        return False
    log_id, *counts = value
    return type(log_id) is int and log_id > 0 and all(_is_count(each) for each in counts)
