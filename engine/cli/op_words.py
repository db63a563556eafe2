"""What checking operations found, for people: a line an operation and type, and every fault."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.cli.output import NONE, counted, print_table
from engine.core.op_matrix import OpState
from engine.core.visible import visible

if TYPE_CHECKING:
    from engine.core.op_matrix import OpMatrix, OpRow, OpSum, OpVerdict

SUM_HEADS = ("op", "type", "supported", "wrong", "worst error", "allowed")
ROW_HEADS = ("op", "type", "case", "result", "error")
COUNT_HEADS = ("prompt", "token")
SPEED_HEADS = ("median us", "spread %", "GB/s", "GFLOP/s")


def print_matrix(matrix: OpMatrix, *, with_speed: bool, of_model: bool) -> None:
    """Device by device; single cases where they are timed or a model's own."""
    for i_device, device in enumerate(matrix.devices):
        if i_device:
            print()
        print(visible(device))
        sums = [each for each in matrix.sums() if each.device == device]
        print_table(SUM_HEADS, [_sum_cells(each) for each in sums])
        if with_speed or of_model:
            print()
            _print_rows(matrix, i_device, with_speed=with_speed, of_model=of_model)
        print()
        print(visible(conclusion(matrix, i_device)))
        for row in matrix.rows:
            if row.verdicts[i_device].is_fault:
                print_fault(row, row.verdicts[i_device])


def conclusion(matrix: OpMatrix, i_device: int) -> str:
    """A sentence on one device."""
    name = matrix.devices[i_device]
    verdicts = [row.verdicts[i_device] for row in matrix.rows]
    counts = {state: sum(v.state is state for v in verdicts) for state in OpState}
    n_faults = counts[OpState.WRONG] + counts[OpState.FAILED]
    n_right = counts[OpState.OK]
    parts = [f"{name}: {n_right} of {counted(len(verdicts), 'case')} computed and right"]
    if counts[OpState.NOT_SUPPORTED]:
        parts.append(f"{counts[OpState.NOT_SUPPORTED]} not supported")
    if counts[OpState.NOT_CHECKED]:
        parts.append(f"{counts[OpState.NOT_CHECKED]} not checked")
    if n_faults:
        parts.append(f"{counts[OpState.WRONG]} wrong, {counts[OpState.FAILED]} failed:")
    return ", ".join(parts) if n_faults else f"{', '.join(parts)}."


def print_fault(row: OpRow, verdict: OpVerdict) -> None:
    """A case that is wrong or failed, in full."""
    print(visible(f"  {row.op} {row.type}: {row.words}"))
    print(visible(f"    {verdict.state.value}: {verdict.reason}"))
    for line in verdict.details.splitlines():
        print(visible(f"      {line}"))


def _sum_cells(each: OpSum) -> tuple[str, ...]:
    worst = each.worst
    checked = each.n_cases - each.n_unchecked
    return (
        each.op,
        each.type,
        f"{each.n_supported}/{checked}",
        str(each.n_faults) if each.n_faults else NONE,
        NONE if worst is None or worst.error is None else _error(worst.error),
        NONE if worst is None else _allowed(worst.bar),
    )


def _print_rows(matrix: OpMatrix, i_device: int, *, with_speed: bool, of_model: bool) -> None:
    heads = (
        *ROW_HEADS, *(COUNT_HEADS if of_model else ()), *(SPEED_HEADS if with_speed else ()),
    )  # fmt: skip
    rows = []
    for row in matrix.rows:
        verdict = row.verdicts[i_device]
        cells = [row.op, row.type, row.words, verdict.state.value]
        cells.append(NONE if verdict.error is None else _error(verdict.error))
        if of_model:
            cells += [str(row.n_prompt), str(row.n_token)]
        if with_speed:
            cells += _speed_cells(verdict)
        rows.append(cells)
    print_table(heads, rows)


def _speed_cells(verdict: OpVerdict) -> list[str]:
    speed = verdict.speed
    if speed is None:
        return [NONE] * len(SPEED_HEADS)
    flops = f"{speed.gflop_per_s:.1f}" if speed.n_flops else NONE
    times = f"{speed.median_ns / 1000:.2f}", f"{100 * speed.spread:.0f}"
    return [*times, f"{speed.gb_per_s:.1f}", flops]


def _error(error: float) -> str:
    return "0" if not error else f"{error:.1e}"


def _allowed(bar: float) -> str:
    return "exact" if not bar else f"{bar:.0e}"
