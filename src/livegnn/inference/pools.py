"""Pools: sums and maxima of rows by group, kept up to date as rows come, go, change and move.

Both get old and new rows of the touched slots, and their old and new groups (-1: in none), and cost by those.

Sums are exact, not rounded to a grid. A float32 is m * 2^(p - 149) with |m| < 2^24 and 0 <= p < 254, so all of them are
integers in units of 2^-149. A sum is kept in PLANES int64 of 32 bits each, of which a float32 touches two next to each
other; the upper bits of an int64 take 2^31 of them without overflow, and vertices are fewer. There is nothing to choose
(no scale), nothing to refuse, and addition is exact, associative and invertible: the state is a function of the rows
alone. It is rounded when it is read. Rows that are not finite are counted instead, by kind.

Maxima are of keys: int32 in the order of float32, NaN above all, -0 as +0. A group's members lie in cells of at most
CELL members; a cell keeps its maxima by column and a group those of its cells. Where the maximum of a cell and column
leaves and nothing as large enters, that column of that cell is read again; where it was the group's maximum too, that
column of the group's cells is. So what a batch reads is bounded by its rows times CELL, plus a CELL-th of the group.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Int32 = NDArray[np.int32]
Rows = NDArray[np.float32]

PLANES = 9  # 32 bits each: 288 bits from 2^-149 on
NAN, UP, DOWN = PLANES, PLANES + 1, PLANES + 2  # planes that count NaN, +inf and -inf
LOW = np.int64(0xFFFFFFFF)
CELL = 128
EMPTY = np.int32(-(2**31))
_PAIRS_MAX = 8192  # (cell, column) pairs read again at a time


class Moves:
    """What a batch does to a pool: k slots, their rows and groups before and after; group -1 is none."""

    def __init__(self, slots: Int64, old_groups: Int64, new_groups: Int64, old: Rows, new: Rows) -> None:
        self.slots, self.old_groups, self.new_groups, self.old, self.new = slots, old_groups, new_groups, old, new


class Pool(Protocol):
    """Rows pooled by group; groups are small integers."""

    def move(self, moves: Moves, rows: Rows) -> None:
        """Follows a batch. rows: of all slots, as the batch leaves them."""

    def read(self, groups: Int64) -> NDArray[np.float64]:
        """(k, width) pooled rows, 0 where a group is empty."""

    def state(self, groups: Int64) -> NDArray[Any]:
        """What must be equal, bit for bit, for equal rows; row i for groups[i]."""

    def bytes(self) -> int:
        """Bytes of state."""


class Sums:
    """Exact sums by group and column."""

    def __init__(self, width: int) -> None:
        self._planes: Int64 = np.zeros((0, PLANES + 3, width), np.int64)

    def move(self, moves: Moves, rows: Rows) -> None:
        leaves, enters = moves.old_groups >= 0, moves.new_groups >= 0
        groups = np.concatenate([moves.old_groups[leaves], moves.new_groups[enters]])
        if not groups.size:
            return
        signs = np.repeat(np.array([-1, 1], np.int64), [leaves.sum(), enters.sum()])
        self._planes = _grown(self._planes, int(groups.max()) + 1, 0)
        order = np.argsort(groups, kind="stable")
        groups, signs = groups[order], signs[order, None]
        x = np.concatenate([moves.old[leaves], moves.new[enters]])[order]
        starts = np.flatnonzero(np.diff(groups, prepend=-1))
        targets = groups[starts]
        plane, low, high, special = _split(x)
        for p in np.unique(plane).tolist():
            here = (plane == p) * signs
            self._planes[targets, p] += np.add.reduceat(low * here, starts)
            self._planes[targets, p + 1] += np.add.reduceat(high * here, starts)
        if special.any():
            for p, kind in ((NAN, np.isnan(x)), (UP, np.isposinf(x)), (DOWN, np.isneginf(x))):
                self._planes[targets, p] += np.add.reduceat(kind * signs, starts)

    def read(self, groups: Int64) -> NDArray[np.float64]:
        """Sums rounded to odd in float64: a further rounding to float32 gives the exact sum rounded once."""
        planes = self.state(groups)
        total = _rounded(planes[:, :PLANES])
        nan = (planes[:, NAN] > 0) | ((planes[:, UP] > 0) & (planes[:, DOWN] > 0))
        total = np.where(planes[:, UP] > 0, np.inf, np.where(planes[:, DOWN] > 0, -np.inf, total))
        return np.where(nan, np.nan, total)

    def state(self, groups: Int64) -> Int64:
        result: Int64 = _grown(self._planes, int(groups.max(initial=-1)) + 1, 0)[groups]
        return result

    def bytes(self) -> int:
        return self._planes.nbytes


def _split(x: Rows) -> tuple[Int64, Int64, Int64, NDArray[np.bool_]]:
    """x = (low + high * 2^32) * 2^(32 * plane - 149); 0 and True in the last array where x is not finite."""
    bits = x.view(np.int32).astype(np.int64)
    exponent = (bits >> 23) & 0xFF
    special: NDArray[np.bool_] = exponent == 0xFF
    position = np.maximum(exponent, 1) - 1
    whole = (bits & 0x7FFFFF) | ((exponent > 0).astype(np.int64) << 23)
    whole[special] = 0
    position[special] = 0
    sign = np.where(bits < 0, -1, 1)
    wide = whole << (position & 31)
    return position >> 5, (wide & LOW) * sign, (wide >> 32) * sign, special


def _rounded(planes: Int64) -> NDArray[np.float64]:
    """Sums of planes (k, PLANES, width), rounded to odd at 53 bits."""
    count, _, width = planes.shape
    digits = np.zeros((PLANES + 3, count, width), np.int64)  # two zeros below, one digit above for the carries
    carry = np.zeros((count, width), np.int64)
    for p in range(PLANES):
        value = planes[:, p] + carry
        digits[p + 2], carry = value & LOW, value >> 32
    digits[PLANES + 2], negative = carry & LOW, carry < 0
    borrow = negative.astype(np.int64)
    for digit in digits[2:]:  # two's complement to magnitude
        value = np.where(negative, ~digit & LOW, digit) + borrow
        digit[:], borrow = value & LOW, value >> 32
    filled = digits != 0
    top = np.maximum(len(digits) - 1 - np.argmax(filled[::-1], axis=0), 2)
    below = np.cumsum(filled, axis=0)

    def at(place: Int64) -> NDArray[np.uint64]:
        chosen: Int64 = np.take_along_axis(digits, place[None], axis=0)[0]
        return chosen.astype(np.uint64)

    first, second, third = at(top), at(top - 1), at(top - 2)
    rest = np.take_along_axis(below, np.maximum(top - 3, 0)[None], axis=0)[0] > 0
    length = np.frexp(first.astype(np.float64))[1].astype(np.uint64)
    window = ((first << np.uint64(32)) | second) << (np.uint64(32) - length) | (third >> length)  # 64 bits
    lost = (third & ((np.uint64(1) << length) - np.uint64(1))) != 0
    sticky = lost | rest | ((window & np.uint64(0x7FF)) != 0)
    kept = (window >> np.uint64(11)) | sticky.astype(np.uint64)
    exponent = 32 * (top - 2) - 53 + length.astype(np.int64) - 149
    total = np.ldexp(kept.astype(np.float64), exponent.astype(np.int32))
    total = np.where(first == 0, 0.0, total)
    return np.where(negative, -total, total)


class Maxima:
    """Maxima by group and column."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._top: Int32 = np.zeros((0, width), np.int32)  # by group
        self._best: Int32 = np.zeros((0, width), np.int32)  # by cell
        self._members: Int32 = np.zeros((0, CELL), np.int32)  # slots, -1 where a place is free
        self._owner: Int64 = np.zeros(0, np.int64)  # group of a cell
        self._place: Int64 = np.zeros(0, np.int64)  # by slot: cell * CELL + place in it
        self._cells: dict[int, list[int]] = {}
        self._free: dict[int, list[int]] = {}  # free places by group
        self._free_cells: list[int] = []
        self._cell_count = 0

    def move(self, moves: Moves, rows: Rows) -> None:
        if not moves.slots.size:
            return
        stays = (moves.old_groups == moves.new_groups) & (moves.old_groups >= 0)
        leaves, enters = (moves.old_groups >= 0) & ~stays, (moves.new_groups >= 0) & ~stays
        old, new = _keys(moves.old), _keys(moves.new)
        self._reserve(moves, enters)
        was = self._place[moves.slots]
        exposed = [_pairs(was[leaves], old[leaves] == self._best[was[leaves] // CELL], self._width)]
        gone = (old[stays] == self._best[was[stays] // CELL]) & (old[stays] != new[stays])
        exposed.append(_pairs(was[stays], gone, self._width))
        self._members.reshape(-1)[was[leaves]] = -1
        for place, group in zip(was[leaves].tolist(), moves.old_groups[leaves].tolist(), strict=True):
            self._free[group].append(place)
        self._enter(moves.slots[enters], moves.new_groups[enters])
        here = self._place[moves.slots[stays | enters]] // CELL
        cells = np.unique(np.concatenate([was[leaves] // CELL, here]))
        before = self._best[cells]
        _raise(self._best, here, new[stays | enters])
        self._read_again(np.unique(np.concatenate(exposed)), cells, before, rows)
        self._follow_cells(cells, before)
        for group in np.unique(moves.old_groups[leaves]).tolist():
            self._release_empty(group)

    def read(self, groups: Int64) -> NDArray[np.float64]:
        keys = self.state(groups)
        bits = np.where(keys < 0, keys ^ np.int32(0x7FFFFFFF), keys)
        with np.errstate(invalid="ignore"):  # a cast of NaN
            values = np.ascontiguousarray(bits).view(np.float32).astype(np.float64)
        return np.where(keys == EMPTY, 0.0, values)

    def state(self, groups: Int64) -> Int32:
        result: Int32 = _grown(self._top, int(groups.max(initial=-1)) + 1, EMPTY)[groups]
        return result

    def bytes(self) -> int:
        arrays = (self._top, self._best, self._members, self._owner, self._place)
        return sum(array.nbytes for array in arrays)

    def _reserve(self, moves: Moves, enters: NDArray[np.bool_]) -> None:
        self._place = _grown(self._place, int(moves.slots.max()) + 1, 0)
        self._top = _grown(self._top, int(moves.new_groups.max(initial=-1)) + 1, EMPTY)
        groups, counts = np.unique(moves.new_groups[enters], return_counts=True)
        for group, count in zip(groups.tolist(), counts.tolist(), strict=True):
            free = self._free.setdefault(group, [])
            for _ in range(-(-max(0, count - len(free)) // CELL)):
                cell = self._new_cell(group)
                free.extend(range((cell + 1) * CELL - 1, cell * CELL - 1, -1))

    def _new_cell(self, group: int) -> int:
        if self._free_cells:
            cell = self._free_cells.pop()
        else:
            cell, self._cell_count = self._cell_count, self._cell_count + 1
            self._best = _grown(self._best, self._cell_count, EMPTY)
            self._members = _grown(self._members, self._cell_count, -1)
            self._owner = _grown(self._owner, self._cell_count, -1)
        self._owner[cell] = group
        self._cells.setdefault(group, []).append(cell)
        return cell

    def _enter(self, slots: Int64, groups: Int64) -> None:
        order = np.argsort(groups, kind="stable")
        present, counts = np.unique(groups, return_counts=True)
        places = []
        for group, count in zip(present.tolist(), counts.tolist(), strict=True):
            free = self._free[group]
            places.extend(free[: -count - 1 : -1])
            del free[-count:]
        self._place[slots[order]] = places
        self._members.reshape(-1)[places] = slots[order]

    def _read_again(self, pairs: Int64, cells: Int64, before: Int32, rows: Rows) -> None:
        """Maxima of (cell, column) pairs that lost theirs, unless something larger has come in."""
        place = np.searchsorted(cells, pairs // self._width)
        covered = self._best.reshape(-1)[pairs] > before[place, pairs % self._width]
        pairs = pairs[~covered]
        for begin in range(0, len(pairs), _PAIRS_MAX):
            cell, column = np.divmod(pairs[begin : begin + _PAIRS_MAX], self._width)
            members = self._members[cell]
            keys = np.where(members < 0, EMPTY, _keys(rows[np.maximum(members, 0), column[:, None]]))
            self._best[cell, column] = keys.max(axis=1)

    def _follow_cells(self, cells: Int64, before: Int32) -> None:
        after, owners = self._best[cells], self._owner[cells]
        lost = (after < before) & (before == self._top[owners])
        _raise(self._top, owners, after)
        for group in np.unique(owners[lost.any(axis=1)]).tolist():
            columns = np.flatnonzero(lost[owners == group].any(axis=0))
            self._top[group, columns] = self._best[np.array(self._cells[group])][:, columns].max(axis=0)

    def _release_empty(self, group: int) -> None:
        cells = self._cells[group]
        if len(self._free[group]) == len(cells) * CELL:
            self._free_cells.extend(reversed(cells))
            del self._cells[group], self._free[group]


KINDS: dict[str, type[Sums] | type[Maxima]] = {"add": Sums, "mean": Sums, "max": Maxima}


class Joined:
    """Pools of columns of the same rows, side by side: of (kind, start, stop); sum and mean of the same columns share
    their state.
    """

    def __init__(self, parts: Sequence[tuple[str, int, int]]) -> None:
        self._keys = [(KINDS[kind], start, stop) for kind, start, stop in parts]
        self.pools: dict[tuple[type[Sums] | type[Maxima], int, int], Sums | Maxima] = {
            key: key[0](key[2] - key[1]) for key in self._keys
        }

    def move(self, moves: Moves, rows: Rows) -> None:
        for (_, start, stop), pool in self.pools.items():
            old, new = (
                each if stop - start == rows.shape[1] else each[:, start:stop] for each in (moves.old, moves.new)
            )
            pool.move(Moves(moves.slots, moves.old_groups, moves.new_groups, old, new), rows[:, start:stop])

    def read(self, groups: Int64) -> NDArray[np.float64]:
        parts = {key: pool.read(groups) for key, pool in self.pools.items()}
        return np.concatenate([parts[key] for key in self._keys], axis=1)

    def state(self, groups: Int64) -> Int64:
        states = [pool.state(groups) for pool in self.pools.values()]
        flat = [each.astype(np.int64).reshape(len(groups), math.prod(each.shape[1:])) for each in states]
        return np.concatenate(flat, axis=1)

    def bytes(self) -> int:
        return sum(pool.bytes() for pool in self.pools.values())


def _keys(x: Rows) -> Int32:
    """int32 in the order of x; -0 as +0, and every NaN as one, above infinity."""
    bits = np.ascontiguousarray(np.where(np.isnan(x), np.float32(np.nan), x + np.float32(0))).view(np.int32)
    bits = np.where(np.isnan(x), np.int32(0x7FC00000), bits)
    return np.where(bits < 0, bits ^ np.int32(0x7FFFFFFF), bits)


def _pairs(places: Int64, exposed: NDArray[np.bool_], width: int) -> Int64:
    row, column = np.nonzero(exposed)
    flat: Int64 = (places[row] // CELL) * width + column
    return flat


def _raise(table: Int32, index: Int64, keys: Int32) -> None:
    """table[index[i]] = max(itself, keys[i]), index in any order and with repetitions."""
    if not index.size:
        return
    order = np.argsort(index, kind="stable")
    starts = np.flatnonzero(np.diff(index[order], prepend=-1))
    targets = index[order][starts]
    table[targets] = np.maximum(table[targets], np.maximum.reduceat(keys[order], starts))


def _grown(array: NDArray[Any], count: int, fill: Any) -> NDArray[Any]:
    """The array with room for `count` rows: as it is, or a larger copy."""
    if count <= len(array):
        return array
    result = np.full((max(count, len(array) * 2), *array.shape[1:]), fill, array.dtype)
    result[: len(array)] = array
    return result
