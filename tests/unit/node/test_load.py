"""When a node counts as one that keeps up with its input."""

from __future__ import annotations

from rewake.node.load import Load


def test_a_new_node_has_not_shown_that_it_keeps_up():
    assert not Load().keeps_up(0.0)


def test_a_node_that_had_nothing_to_do_a_moment_ago_keeps_up():
    load = Load()
    load.rested(1000.0)
    assert load.keeps_up(1000.0)
    assert load.keeps_up(1060.0)


def test_a_node_with_work_for_long_without_a_break_is_at_its_limit_until_it_rests():
    load = Load()
    load.rested(1000.0)
    assert not load.keeps_up(1101.0)
    load.rested(1200.0)
    assert load.keeps_up(1201.0)
