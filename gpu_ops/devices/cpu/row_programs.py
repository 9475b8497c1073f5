"""The evaluation of row programs (`gpu_ops.plan.row_programs`) inside other kernels, for one row of each slot.

Kernels of other files call `evaluate`, and Numba's cache of those does not notice a change here: touch them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu_ops.devices.cpu.compiling import Bools, Floats, Ints, called

VALUE, UNKNOWN, OVERFLOW = 0, 1, 2
"""What `evaluate` found: a value, null, or a whole number that does not fit its type."""

# The instructions of `gpu_ops.plan.row_programs.Op`, which tests compare.
CELL, CONSTANT, NULL, FLOAT, EQUAL, LESS, EQUAL_FLOAT, LESS_FLOAT, AND, OR, NOT, IS_NULL, CHOOSE, FIRST = range(14)
ADD, SUBTRACT, MULTIPLY, ADD_FLOAT, SUBTRACT_FLOAT, MULTIPLY_FLOAT, DIVIDE_FLOAT = range(14, 21)


_MOST: Any = np.int64((1 << 63) - 1)
_LEAST: Any = np.int64(-(1 << 63))


@called
def is_equal(one: float, other: float) -> bool:
    """Whether floats are equal; NaN equals itself."""
    return one == other or (np.isnan(one) and np.isnan(other))


@called
def is_less(one: float, other: float) -> bool:
    """Whether a float is less than another one; NaN is the greatest."""
    return one < other or (np.isnan(other) and not np.isnan(one))


@called
def overflows(op: int, one: int, other: int) -> bool:
    """Whether a result of whole numbers does not fit 64 bits."""
    # No sum that wraps is ever made: the compiler takes for granted that there is none.
    if op == ADD:
        return bool(one > _MOST - other if other > 0 else one < _LEAST - other)
    if op == SUBTRACT:
        return bool(one < _LEAST + other if other > 0 else one > _MOST + other)
    if other == 0 or one == 0:
        return False
    if _LEAST in (one, other):
        return one != 1 and other != 1
    least = np.int64(0) if (one < 0) == (other < 0) else np.int64(1)
    return bool(np.uint64(abs(one)) > (np.uint64(_MOST) + np.uint64(least)) // np.uint64(abs(other)))


@called
def evaluate(  # noqa: C901, PLR0912, PLR0915  (a case for each instruction)
    program: int,
    code: Ints,
    bounds: Ints,
    constants: Ints,
    begins: Ints,
    values: Ints,
    there: Bools,
    at: Ints,
    stack: Ints,
    floats: Floats,
    known: Bools,
) -> int:
    """Evaluate a program: its result is in ``stack[0]``, where it is not null.

    Args:
        program: Its number.
        code: As `gpu_ops.plan.row_programs.ProgramTables`.
        bounds: Likewise.
        constants: Likewise.
        begins: int64[cells + 1]: where the values of each cell begin; the last one of each is that of no row.
        values: int64: the values of all cells: whole numbers, ranks of texts, the bits of floats.
        there: Which of them are not null.
        at: int64[cells]: the row of each cell; -1 for no row.
        stack: Room for as many numbers as a program has instructions.
        floats: The same room as floats.
        known: Likewise.

    Returns:
        `VALUE`, `UNKNOWN` or `OVERFLOW`.
    """
    top = -1
    for place in range(bounds[program], bounds[program + 1], 2):
        op, argument = code[place], code[place + 1]
        if op == CELL:
            row = at[argument]
            index = begins[argument] + row if row >= 0 else begins[argument + 1] - 1
            top += 1
            stack[top], known[top] = values[index], there[index]
        elif op == CONSTANT:
            top += 1
            stack[top], known[top] = constants[argument], True
        elif op == NULL:
            top += 1
            stack[top], known[top] = 0, False
        elif op == FLOAT:
            floats[top] = np.float64(stack[top])
        elif op == NOT:
            stack[top] = 1 - stack[top]
        elif op == IS_NULL:
            stack[top], known[top] = np.int64(not known[top]), True
        elif op == CHOOSE:
            top -= 2
            chosen = top + 1 if known[top] and stack[top] == 1 else top + 2
            stack[top], known[top] = stack[chosen], known[chosen]
        elif op == FIRST:
            top -= 1
            if not known[top]:
                stack[top], known[top] = stack[top + 1], known[top + 1]
        elif op in (AND, OR):
            top -= 1
            decides = np.int64(op == OR)
            if (known[top] and stack[top] == decides) or (known[top + 1] and stack[top + 1] == decides):
                stack[top], known[top] = decides, True
            elif known[top] and known[top + 1]:
                stack[top] = 1 - decides
            else:
                known[top] = False
        else:
            top -= 1
            known[top] = known[top] and known[top + 1]
            one, other = stack[top], stack[top + 1]
            if not known[top]:
                pass
            elif op == EQUAL:
                stack[top] = np.int64(one == other)
            elif op == LESS:
                stack[top] = np.int64(one <= other if argument else one < other)
            elif op == EQUAL_FLOAT:
                stack[top] = np.int64(is_equal(floats[top], floats[top + 1]))
            elif op == LESS_FLOAT:
                least, most = floats[top], floats[top + 1]
                stack[top] = np.int64(is_less(least, most) or (argument == 1 and is_equal(least, most)))
            elif op == ADD_FLOAT:
                floats[top] = floats[top] + floats[top + 1]
            elif op == SUBTRACT_FLOAT:
                floats[top] = floats[top] - floats[top + 1]
            elif op == MULTIPLY_FLOAT:
                floats[top] = floats[top] * floats[top + 1]
            elif op == DIVIDE_FLOAT:
                floats[top] = floats[top] / floats[top + 1]
            else:
                if overflows(op, one, other):
                    return OVERFLOW
                if op == ADD:
                    stack[top] = one + other
                elif op == SUBTRACT:
                    stack[top] = one - other
                else:
                    stack[top] = one * other
                if stack[top] < constants[argument] or stack[top] > constants[argument + 1]:
                    return OVERFLOW
    return VALUE if known[0] else UNKNOWN
