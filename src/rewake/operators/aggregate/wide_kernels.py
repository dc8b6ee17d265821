"""Loops over values that are pairs of 64-bit integers: decimals, and texts in an arena.

A decimal is (low, high), two's complement in 128 bits; a text is (start, length).  As in
`accumulators`, tuples and closings are seen in the order in which the router has put them.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from rewake.operators.columns.prefetch import AHEAD, prefetch

_ZERO, _ONE, _TEN, _SIGN = np.uint64(0), np.uint64(1), np.uint64(10), np.uint64(63)
_HALF, _HALF_MASK, _TOO_LARGE = np.uint64(32), np.uint64(2**32 - 1), np.uint64(60)


# --- arithmetic ------------------------------------------------------------------------------


@njit(cache=True, nogil=True, inline="always")
def _below(low, high, other_low, other_high):  # type: ignore[no-untyped-def]
    return high < other_high or (high == other_high and np.uint64(low) < np.uint64(other_low))


@njit(cache=True, nogil=True, inline="always")
def _sum(low, high, more_low, more_high):  # type: ignore[no-untyped-def]
    total = np.uint64(low) + np.uint64(more_low)
    carry = _ONE if total < np.uint64(low) else _ZERO
    return np.int64(total), np.int64(np.uint64(high) + np.uint64(more_high) + carry)


@njit(cache=True, nogil=True, inline="always")
def _outside(low, high, one_high, other_high, most):  # type: ignore[no-untyped-def]
    """Whether a sum of two is more than `most` or less than its negative, or left 128 bits."""
    wrapped = (one_high < 0) == (other_high < 0) and (high < 0) != (one_high < 0)
    above = _below(most[0], most[1], low, high)
    return wrapped or above or _below(low, high, most[2], most[3])


@njit(cache=True, nogil=True, inline="always")
def _negative(low, high):  # type: ignore[no-untyped-def]
    lower = ~low + _ONE
    return lower, ~high + (_ONE if lower == _ZERO else _ZERO)


@njit(cache=True, nogil=True)
def divided(low, high, divisor):  # type: ignore[no-untyped-def]
    """Quotient (low, high) and remainder of unsigned integers; the divisor is below 2**63."""
    rest, quotient_low, quotient_high = _ZERO, _ZERO, _ZERO
    if divisor <= _HALF_MASK:
        for limb in range(4):
            word = high if limb < 2 else low
            half = word >> _HALF if limb % 2 == 0 else word & _HALF_MASK
            rest = (rest << _HALF) | half
            quotient_high = (quotient_high << _HALF) | (quotient_low >> _HALF)
            quotient_low = (quotient_low << _HALF) | (rest // divisor)
            rest %= divisor
        return quotient_low, quotient_high, rest
    for bit in range(128):
        word = high if bit < 64 else low
        rest = (rest << _ONE) | ((word >> (_SIGN - np.uint64(bit % 64))) & _ONE)
        quotient_high = (quotient_high << _ONE) | (quotient_low >> _SIGN)
        quotient_low <<= _ONE
        if rest >= divisor:
            rest -= divisor
            quotient_low |= _ONE
    return quotient_low, quotient_high, rest


@njit(cache=True, nogil=True, inline="always")
def _ten_times(low, high, digit):  # type: ignore[no-untyped-def]
    """Ten times a number below 2**124, and a digit."""
    eight_high = (high << np.uint64(3)) | (low >> np.uint64(61))
    two_high = (high << _ONE) | (low >> _SIGN)
    eight, two = low << np.uint64(3), low << _ONE
    ten = eight + two
    tens = eight_high + two_high + (_ONE if ten < eight else _ZERO)
    total = ten + digit
    return total, tens + (_ONE if total < ten else _ZERO)


@njit(cache=True, nogil=True)
def averages(sums, counts, digits, most, out):  # type: ignore[no-untyped-def]
    """Sums by counts to so many more digits, halves away from zero; whether one is too large."""
    overflowed = False
    for i in range(counts.size):
        low, high = np.uint64(sums[i, 0]), np.uint64(sums[i, 1])
        below_zero = sums[i, 1] < 0
        if below_zero:
            low, high = _negative(low, high)
        count = np.uint64(counts[i])
        low, high, rest = divided(low, high, count)
        for _ in range(digits):
            overflowed |= (high >> _TOO_LARGE) != _ZERO
            rest *= _TEN
            low, high = _ten_times(low, high, rest // count)
            rest %= count
        if rest + rest >= count:
            low += _ONE
            high += _ONE if low == _ZERO else _ZERO
        overflowed |= _below(most[0], most[1], np.int64(low), np.int64(high))
        if below_zero:
            low, high = _negative(low, high)
        out[i, 0] = np.int64(low)
        out[i, 1] = np.int64(high)
    return overflowed


@njit(cache=True, nogil=True)
def without_zeros(values, scale, digits, scales):  # type: ignore[no-untyped-def]
    """The digits of decimals without zeros at their end, and the scale that this leaves."""
    for i in range(scales.size):
        low, high = np.uint64(values[i, 0]), np.uint64(values[i, 1])
        below_zero = values[i, 1] < 0
        if below_zero:
            low, high = _negative(low, high)
        left = np.int64(scale)
        if low == _ZERO and high == _ZERO:
            left = np.int64(0)
        else:
            while low & _ONE == _ZERO:
                fewer_low, fewer_high, rest = divided(low, high, _TEN)
                if rest != _ZERO:
                    break
                low, high = fewer_low, fewer_high
                left -= 1
        if below_zero:
            low, high = _negative(low, high)
        digits[i, 0] = np.int64(low)
        digits[i, 1] = np.int64(high)
        scales[i] = left


# --- decimals --------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def run_decimal_sum(slots, values, at, first, parts, state, most, out):  # type: ignore[no-untyped-def]
    """Sums; says whether one was more than `most`, or less than its negative."""
    done = 0
    overflowed = False
    flat = state.reshape(state.size)
    for c in range(at.size + 1):
        stop = at[c] if c < at.size else slots.size
        for i in range(done, stop):
            if i + AHEAD < slots.size:
                prefetch(flat, np.int64(slots[i + AHEAD]) * 2)
            slot = slots[i]
            if slot >= 0:
                before = state[slot, 1]
                low, high = _sum(state[slot, 0], before, values[i, 0], values[i, 1])
                overflowed |= _outside(low, high, before, values[i, 1], most)
                state[slot, 0] = low
                state[slot, 1] = high
        done = stop
        if c < at.size:
            low, high = np.int64(0), np.int64(0)
            for p in range(first[c], first[c + 1]):
                slot = parts[p] >> 1
                before = high
                low, high = _sum(low, high, state[slot, 0], state[slot, 1])
                overflowed |= _outside(low, high, before, state[slot, 1], most)
                if parts[p] & 1:
                    state[slot, 0] = 0
                    state[slot, 1] = 0
            out[c, 0] = low
            out[c, 1] = high
    return overflowed


@njit(cache=True, nogil=True, inline="always")
def _beats(low, high, best_low, best_high, sign):  # type: ignore[no-untyped-def]
    if sign > 0:
        return _below(low, high, best_low, best_high)
    return _below(best_low, best_high, low, high)


@njit(cache=True, nogil=True)
def run_decimal_extreme(slots, values, at, first, parts, state, identity, sign, out):  # type: ignore[no-untyped-def]
    """Smallest (`sign` 1) or largest (`sign` -1) decimals."""
    done = 0
    for c in range(at.size + 1):
        stop = at[c] if c < at.size else slots.size
        for i in range(done, stop):
            slot = slots[i]
            if slot >= 0 and _beats(
                values[i, 0], values[i, 1], state[slot, 0], state[slot, 1], sign
            ):
                state[slot, 0] = values[i, 0]
                state[slot, 1] = values[i, 1]
        done = stop
        if c < at.size:
            low, high = identity[0], identity[1]
            for p in range(first[c], first[c + 1]):
                slot = parts[p] >> 1
                if _beats(state[slot, 0], state[slot, 1], low, high, sign):
                    low, high = state[slot, 0], state[slot, 1]
                if parts[p] & 1:
                    state[slot, 0] = identity[0]
                    state[slot, 1] = identity[1]
            out[c, 0] = low
            out[c, 1] = high


# --- decimals and texts ----------------------------------------------------------------------


@njit(cache=True, nogil=True)
def run_pair_arrival(  # type: ignore[no-untyped-def]
    slots, values, position, at, first, parts, state, arrived, identity, latest, out
):
    """Pair that arrived first or, with `latest`, last; `arrived` is 0 where there is none."""
    done = 0
    for c in range(at.size + 1):
        stop = at[c] if c < at.size else slots.size
        for i in range(done, stop):
            slot = slots[i]
            if slot >= 0 and (latest or arrived[slot] == 0):
                state[slot, 0] = values[i, 0]
                state[slot, 1] = values[i, 1]
                arrived[slot] = position + i + 1
        done = stop
        if c < at.size:
            when = np.int64(0)
            out[c, 0] = identity[0]
            out[c, 1] = identity[1]
            for p in range(first[c], first[c + 1]):
                slot = parts[p] >> 1
                then = arrived[slot]
                if then and (when == 0 or (then > when if latest else then < when)):
                    when = then
                    out[c, 0] = state[slot, 0]
                    out[c, 1] = state[slot, 1]
                if parts[p] & 1:
                    state[slot, 0] = identity[0]
                    state[slot, 1] = identity[1]
                    arrived[slot] = 0


# --- texts -----------------------------------------------------------------------------------


@njit(cache=True, nogil=True, inline="always")
def _wins(arena, start, length, best, best_length, sign):  # type: ignore[no-untyped-def]
    """Whether bytes come before the best so far (`sign` 1) or behind them; nothing always loses."""
    if length < 0:
        return False
    if best_length < 0:
        return True
    order = length - best_length
    for j in range(min(length, best_length)):
        if arena[start + j] != arena[best + j]:
            order = np.int64(arena[start + j]) - np.int64(arena[best + j])
            break
    return order < 0 if sign > 0 else order > 0


@njit(cache=True, nogil=True)
def run_text_extreme(slots, values, at, first, parts, state, arena, sign, out):  # type: ignore[no-untyped-def]
    """First (`sign` 1) or last text in the order of bytes."""
    done = 0
    for c in range(at.size + 1):
        stop = at[c] if c < at.size else slots.size
        for i in range(done, stop):
            slot = slots[i]
            if slot >= 0 and _wins(
                arena, values[i, 0], values[i, 1], state[slot, 0], state[slot, 1], sign
            ):
                state[slot, 0] = values[i, 0]
                state[slot, 1] = values[i, 1]
        done = stop
        if c < at.size:
            start, length = np.int64(0), np.int64(-1)
            for p in range(first[c], first[c + 1]):
                slot = parts[p] >> 1
                if _wins(arena, state[slot, 0], state[slot, 1], start, length, sign):
                    start, length = state[slot, 0], state[slot, 1]
                if parts[p] & 1:
                    state[slot, 0] = 0
                    state[slot, 1] = -1
            out[c, 0] = start
            out[c, 1] = length
