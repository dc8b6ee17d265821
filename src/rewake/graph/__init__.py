"""Queries: the steps a user writes, the plan that runs them, its explanation and its picture."""

from rewake.graph.plan.plan import InputPlan, NodePlan, OutputPlan, Plan
from rewake.graph.query import Query
from rewake.graph.stream import LoopStream, Stream
from rewake.operators.windows.specs import count_window, session_window, time_window

__all__ = [
    "InputPlan",
    "LoopStream",
    "NodePlan",
    "OutputPlan",
    "Plan",
    "Query",
    "Stream",
    "count_window",
    "session_window",
    "time_window",
]
