"""Recoveries that nobody staged: what each took is kept beside what had been predicted."""

from pathlib import Path

from drill_vocabulary import until

from rewake.drill.promise import explained
from rewake.drill.queries import ItemDrill
from rewake.graph.query import Query
from rewake.net.nodes.calibration import kept_rates
from rewake.net.nodes.recoveries import KeptRecovery, kept_recoveries
from rewake.net.queries.running import RunningQuery, start_processes

TARGET_MS = 2000.0


def promised() -> Query:
    """The averages of 2,000 items, longer than any test, back within two seconds."""
    drill = ItemDrill(tuples=100_000_000, items=2000, rate=200_000, recover_within="2s")
    return drill.build()


def await_prediction(folder: Path) -> None:
    """Until the node has kept what a crash would cost, with windows to lose."""

    def kept() -> bool:
        said = kept_rates(folder, "averages")
        return said is not None and said.figures["open_windows"] > 1000

    until(kept)


def await_recovery(folder: Path, number: int) -> KeptRecovery:
    """The recovery with this number, counted from one."""
    until(lambda: len(kept_recoveries(folder, "averages")) >= number)
    return kept_recoveries(folder, "averages")[number - 1]


def await_progress(query: RunningQuery, epoch: int) -> dict[str, float]:
    """What the node says of itself in the life of this epoch, when it is back."""
    until(lambda: query.status()["averages"].get("epoch", 0) >= epoch)
    until(lambda: "recovery_achieved_ms" in query.status()["averages"])
    return query.status()["averages"]


def test_a_crash_is_kept_with_its_prediction_and_shown(tmp_path: Path) -> None:
    """In the query's folder, in its progress, and by `rewake explain`."""
    query = promised()
    with start_processes(query, tmp_path) as running:
        await_prediction(tmp_path)
        assert kept_recoveries(tmp_path, "averages") == [], "a first life recovers nothing"
        running.signal_node("averages")
        kept = await_recovery(tmp_path, 1)
        said = await_progress(running, kept.epoch)
    assert kept.target_ms == TARGET_MS
    assert kept.predicted_ms is not None
    assert kept.predicted_ms > 0
    assert kept.achieved_ms >= kept.load_ms + kept.replay_ms > 0
    assert kept.records >= 1000
    assert kept.tuples > 0
    assert said["recovery_predicted_ms"] == kept.predicted_ms
    assert said["recovery_achieved_ms"] == kept.achieved_ms
    words = "\n".join(explained(query.plan(), tmp_path))
    assert f"took {kept.achieved_ms:,.0f} ms, predicted {kept.predicted_ms:,.0f} ms" in words


def test_a_query_that_is_started_again_keeps_that_recovery_too(tmp_path: Path) -> None:
    """The prediction is that of the life before the stop, which another driver had started."""
    for number in (0, 1, 2):
        with start_processes(promised(), tmp_path):
            if number:
                assert await_recovery(tmp_path, number).predicted_ms is not None
            await_prediction(tmp_path)
    assert [each.epoch for each in kept_recoveries(tmp_path, "averages")] == [2, 3]


def test_lines_that_are_no_recoveries_are_passed_over(tmp_path: Path) -> None:
    """A crash may have cut one off; the others are still there."""
    assert kept_recoveries(tmp_path, "averages") == []
    (tmp_path / "recoveries").mkdir()
    line = (
        '{"at": 1, "epoch": 2, "target_ms": 9, "predicted_ms": null, "achieved_ms": 8, '
        '"load_ms": 1, "replay_ms": 2, "records": 3, "tuples": 4}'
    )
    text = f'{line}\n{{"at": 1}}\n[]\n{line[:30]}'
    (tmp_path / "recoveries" / "averages.jsonl").write_text(text)
    assert [each.within for each in kept_recoveries(tmp_path, "averages")] == [True]
