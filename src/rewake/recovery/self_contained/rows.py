"""How the rows of a batch are stored in a self-contained log.

- INPUT of output 0: those of the columns that the operator reads that are numbers, dates or times,
  packed (`packing`): the values of each, then for each which of them are valid, nothing if all are.
- INPUT of output 1: the other columns it reads, without dictionaries, as one Arrow IPC record batch
  message (no schema).

Whatever is in the bytes, reading them raises `DamagedFrame` and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rewake.log.frame import Frame, Section, SectionKind
from rewake.model.batches import read_batch
from rewake.model.errors import DamagedFrame
from rewake.model.stream_event import no_tuples
from rewake.operators.columns.arrays import Array, arrow_array, dtype_of, values_view
from rewake.operators.columns.plain import encoded_as, plain_batch, plain_schema
from rewake.recovery.packing import estimated_bytes, pack_tightly, unpack_any
from rewake.recovery.self_contained.frames import BatchMark, MarkedFrame

_PACKED_OUTPUT: Final = 0
_OTHER_OUTPUT: Final = 1


def _dtype(kind: pa.DataType) -> np.dtype[np.generic] | None:
    """The numbers that values of this type are stored as; None for types that are not packed."""
    dtype = None if pa.types.is_boolean(kind) else dtype_of(kind)
    # The bits of unsigned numbers are stored as those of signed ones.
    unsigned = dtype is not None and dtype.kind == "u"
    return np.dtype(f"i{kind.bit_width // 8}") if unsigned else dtype


class StoredRows:
    """Packs the columns an operator reads, and makes batches for it of what was packed.

    Columns that it does not read come back as nulls.
    """

    def __init__(self, schema: pa.Schema, columns: Sequence[str]) -> None:
        self._schema = schema
        wanted = set(columns)
        self._places = [place for place, name in enumerate(schema.names) if name in wanted]
        self._stored = plain_schema(pa.schema([schema.field(place) for place in self._places]))
        dtypes = [_dtype(each.type) for each in self._stored]
        # Places among the stored columns.
        self._packed = {place: dtype for place, dtype in enumerate(dtypes) if dtype is not None}
        self._others = [place for place, dtype in enumerate(dtypes) if dtype is None]
        described = ", ".join(f"{each.name}: {each.type}" for each in self._stored)
        self.fingerprint = crc32(described.encode())
        self.empty = no_tuples(schema)

    # --- packing -----------------------------------------------------------------------------

    def _plain(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        read = batch if len(self._places) == len(self._schema) else batch.select(self._places)
        return plain_batch(read)

    def _values(self, plain: pa.RecordBatch) -> list[Array]:
        return [values_view(plain.column(place), dtype) for place, dtype in self._packed.items()]

    def stored_bytes(self, batch: pa.RecordBatch) -> float:
        """About how many bytes the rows take."""
        plain = self._plain(batch)
        others: int = sum(plain.column(place).nbytes for place in self._others)
        return others + estimated_bytes(self._values(plain), batch.num_rows)

    def sections(self, batch: pa.RecordBatch) -> list[Section]:
        """The sections that hold the rows."""
        plain = self._plain(batch)
        sections = []
        if self._packed:
            flags = [_validity(plain.column(place)) for place in self._packed]
            payload = pack_tightly([*self._values(plain), *flags])
            sections.append(Section(SectionKind.INPUT, payload, _PACKED_OUTPUT))
        if self._others:
            payload = plain.select(self._others).serialize().to_pybytes()
            sections.append(Section(SectionKind.INPUT, payload, _OTHER_OUTPUT))
        return sections

    # --- unpacking ---------------------------------------------------------------------------

    def unpack(self, marked_frame: MarkedFrame) -> pa.RecordBatch:
        """The rows of a frame, as the operator wants them."""
        frame, mark = marked_frame
        if mark.columns != self.fingerprint:
            raise DamagedFrame(
                f"the rows in frame {frame.sequence} have other columns than this operator reads "
                f"({', '.join(self._stored.names)}): the log belongs to another operator, or to "
                "another version of it"
            )
        if mark.rows == 0:
            return self.empty
        arrays: list[pa.Array] = [None] * len(self._stored)
        for place, array in zip(self._packed, self._unpacked(frame, mark), strict=True):
            arrays[place] = array
        if self._others:
            schema = pa.schema([self._stored.field(place) for place in self._others])
            others = _read(frame, mark, schema)
            for place, array in zip(self._others, others.columns, strict=True):
                arrays[place] = array
        return self._completed(arrays, mark.rows)

    def _unpacked(self, frame: Frame, mark: BatchMark) -> list[pa.Array]:
        """The columns that are stored packed."""
        payload = frame.section(SectionKind.INPUT, _PACKED_OUTPUT)
        if not self._packed:
            return []
        found = [] if payload is None else unpack_any(payload, mark.rows)
        count = len(self._packed)
        values, flags = found[:count], found[count:]
        if (
            [column.dtype for column in values] != list(self._packed.values())
            or [column.dtype for column in flags] != [np.dtype(np.bool_)] * count
            or any(column.size != mark.rows for column in values)
            or any(column.size not in (0, mark.rows) for column in flags)
        ):
            raise DamagedFrame(
                f"the rows in frame {frame.sequence} are not {mark.rows} values of each of the "
                "columns that this operator reads"
            )
        kinds = [self._stored.field(place).type for place in self._packed]
        return [
            arrow_array(column, kind, valid if valid.size else None)
            for column, kind, valid in zip(values, kinds, flags, strict=True)
        ]

    def _completed(self, stored: list[pa.Array], rows: int) -> pa.RecordBatch:
        arrays: list[pa.Array | None] = [None] * len(self._schema)
        for place, column in zip(self._places, stored, strict=True):
            arrays[place] = encoded_as(column, self._schema.field(place).type)
        return pa.RecordBatch.from_arrays(
            [
                pa.nulls(rows, each.type) if column is None else column
                for column, each in zip(arrays, self._schema, strict=True)
            ],
            schema=self._schema,
        )


def _validity(array: pa.Array) -> Array:
    """One flag per value, or nothing when there are no nulls."""
    if array.null_count == 0:
        return np.zeros(0, np.bool_)
    flags: Array = pc.is_valid(array).to_numpy(zero_copy_only=False)
    return flags


def _read(frame: Frame, mark: BatchMark, schema: pa.Schema) -> pa.RecordBatch:
    payload = frame.section(SectionKind.INPUT, _OTHER_OUTPUT)
    wrong = f"the rows in frame {frame.sequence} are not a batch of the columns that this operator"
    batch = read_batch(payload or b"", schema, f"{wrong} reads")
    if batch.num_rows != mark.rows:
        raise DamagedFrame(
            f"frame {frame.sequence} says {mark.rows} rows but holds {batch.num_rows}"
        )
    return batch
