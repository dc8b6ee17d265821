"""What a log of an operator says of itself is read back as it was written, or refused."""

import pyarrow as pa
import pytest

from rewake.log.contents import Contents, metadata_of, place_metadata
from rewake.log.files.descriptor import Descriptor
from rewake.model.errors import DamagedLog

RESULTS = pa.schema([("k", pa.int64()), ("at", pa.timestamp("us"))])
LATE = pa.schema([("k", pa.int64())])


def contents(metadata: dict[str, str | bytes]) -> Contents:
    return Contents(Descriptor(1, "log", 1, metadata))


def test_all_that_is_said_is_read_back():
    """Columns of each output and of the operator, times, watermarks, whose it is and where."""
    found = contents(
        metadata_of(
            [RESULTS, LATE],
            operator={"kind": "aggregate"},
            rows=LATE,
            state=RESULTS,
            watermarks=[0, 11],
            time="at",
            times=pa.timestamp("ns"),
            query="fingerprint",
        )
        | place_metadata("whose", 1, 3)
    )
    assert (found.schema(), found.schema(1), found.schema(2)) == (RESULTS, LATE, None)
    assert (found.operator, found.rows, found.state) == ({"kind": "aggregate"}, LATE, RESULTS)
    assert [found.carries_watermarks(output) for output in (0, 1, 11)] == [True, False, True]
    assert (found.time, found.times, found.query) == ("at", pa.timestamp("ns"), "fingerprint")
    assert found.place == place_metadata("whose", 1, 3)


def test_what_is_not_said_is_nothing():
    """A log that was made by hand, say."""
    found = contents({})
    assert metadata_of([]) == {}
    said = (found.schema(), found.operator, found.rows, found.state, found.time, found.times)
    assert said == (None,) * 6
    assert found.query is None
    assert not found.carries_watermarks(0)
    assert set(found.place.values()) == {None}


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("schema", b"?"),
        ("rows", b""),
        ("times", pa.schema([]).serialize().to_pybytes()),
        ("operator", "{"),
        ("operator", "[]"),
        ("operator", "[" * 100_000),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(name: str, stored: str | bytes):
    """The descriptor has a checksum, so somebody has written it so."""
    found = contents({name: stored})
    with pytest.raises(DamagedLog, match=f"metadata '{name}' of log 'log'"):
        _ = found.schema() if name == "schema" else getattr(found, name)
