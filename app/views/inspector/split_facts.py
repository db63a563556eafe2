"""The figures of the split card. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from app.models.alike import alike_ids, split_kinds
from app.models.expert_words import expert_words
from app.models.plan_words import (
    BATCH_WORDS,
    REASON_WORDS,
    copies_of,
    expert_copy_of,
    n_computed,
)
from app.theme.text import NOTHING, SPACE, count, kib, ms, percent_text, plural
from engine.trace.records import SpanKind

if TYPE_CHECKING:
    import numpy.typing as npt

    from app.models.split_times import SplitTimes
    from engine.core.table import PlanTable
    from engine.trace.metrics import Statistics

N_BINS = 16
MAX_NAMES = 2


@dataclass(frozen=True, slots=True, eq=False)
class SplitFacts:
    """A split's measured figures in words; `alike_ns` has one time a layer for the histogram.

    `experts` and what follows are empty but for a split into which used experts are copied.
    """

    split_id: int
    backend_id: int
    what: str
    compute: str
    compute_note: str
    copy: str
    copy_note: str
    experts: str
    whole_copy: str
    whole_note: str
    cut_because: str
    alike_title: str
    alike_ns: npt.NDArray[np.float64]
    own_ns: float
    statistics: str
    total: str


@dataclass(frozen=True, slots=True, eq=False)
class Bins:
    """A histogram: `edges_ns` has one more than `counts`; `own` is the bin of the selected."""

    edges_ns: npt.NDArray[np.float64]
    counts: npt.NDArray[np.int64]
    own: int


def split_facts(
    table: PlanTable, times: SplitTimes, split_id: int, *, step: int = -1
) -> SplitFacts:
    """What a run measured of one split, and of the splits like it; experts are those of `step`."""
    own_ns = float(times.split_ns[split_id])
    alike = alike_ids(split_kinds(table), split_id)
    found = times.of_splits(alike)
    alike_ns = times.split_ns[alike]
    copy_text, copy_note = _copies(table, times, split_id)
    experts, whole_copy, whole_note = _experts(table, times, split_id, step)
    return SplitFacts(
        split_id=split_id,
        backend_id=int(table.splits[split_id]["backend"]),
        what=_what(table, split_id),
        compute=_ms(own_ns),
        compute_note=f"{_share(own_ns, times)} of {_whole(table, times)}",
        copy=copy_text,
        copy_note=copy_note,
        experts=experts,
        whole_copy=whole_copy,
        whole_note=whole_note,
        cut_because=REASON_WORDS[table.split_reason(split_id)],
        alike_title=_alike_title(len(alike), found),
        alike_ns=alike_ns[~np.isnan(alike_ns)],
        own_ns=own_ns,
        statistics=_statistics(found),
        total=_total(times, found),
    )


def histogram_bins(alike_ns: npt.NDArray[np.float64], own_ns: float) -> Bins:
    """Times in at most N_BINS bins of equal width; at least one time is needed."""
    n_bins = min(N_BINS, max(1, 2 * len(alike_ns)))
    counts, edges = np.histogram(alike_ns, bins=n_bins)
    own = int(np.searchsorted(edges, own_ns, side="right")) - 1
    return Bins(edges, counts.astype(np.int64), min(max(own, 0), n_bins - 1))


def _what(table: PlanTable, split_id: int) -> str:
    """Names of the first computed nodes, and the layer."""
    split = table.splits[split_id]
    names = [
        table.name[table.slot(node_id)]
        for node_id in range(int(split["start"]), int(split["stop"]))
        if not table.is_view_op[table.slot(node_id)]
    ]
    rest = int(n_computed(table)[split_id]) - MAX_NAMES
    shown = ", ".join(names[:MAX_NAMES]) + (f" and {count(rest)} more" if rest > 0 else "")
    layer = int(table.layer[int(split["start"])])
    inside = 0 <= layer <= int(table.layer.max()) and "result" not in (names or [""])[0]
    return f"{shown or 'views only'} · layer {layer}" if inside else shown


def _copies(table: PlanTable, times: SplitTimes, split_id: int) -> tuple[str, str]:
    ids = list(copies_of(table, split_id))
    if not ids:
        return NOTHING, "nothing is copied in"
    n_bytes = int(table.copies["bytes"][ids].sum())
    took_ns = float(np.nansum(times.copy_ns[ids]))
    note = f"{kib(n_bytes)}{SPACE}KiB"
    if np.isnan(times.copy_ns[ids]).all():
        return NOTHING, note
    copied = _copied(times, ids)
    if expert_copy_of(table, split_id) >= 0:
        note = f"{kib(round(copied / _n_sums(times)))} of {note}"
    if took_ns:
        note += f", {count(copied / took_ns, 1)}{SPACE}GB/s"
    return _ms(took_ns), note


def _experts(table: PlanTable, times: SplitTimes, split_id: int, step: int) -> tuple[str, str, str]:
    """Which experts were copied; how long all would have taken, and why one thinks so."""
    copy_id = expert_copy_of(table, split_id)
    words = expert_words(table, times.spans, copy_id, step=step)
    where = f", {BATCH_WORDS[table.batch]} step {step}"
    if words is None:
        words, where = expert_words(table, times.spans, copy_id), ""
    if words is None:
        return "", "", ""
    experts = f"{words.which}, {words.moved}{where if step >= 0 else ''}"
    if not words.whole_ns:
        return experts, "", ""
    return experts, _ms(words.whole_ns), f"{words.whole} at {words.basis}"


def _copied(times: SplitTimes, copy_ids: list[int]) -> float:
    """Bytes that were really copied in one step or over the prompt, as the times are."""
    spans = times.spans[times.spans["kind"] == SpanKind.COPY]
    total = float(spans["bytes"][np.isin(spans["index"], copy_ids)].sum())
    return total / times.n_steps if times.is_median else total


def _n_sums(times: SplitTimes) -> int:
    """How many steps a figure adds up."""
    return 1 if times.is_median else times.n_steps


def _alike_title(n_alike: int, found: Statistics | None) -> str:
    n = f", n = {count(found.n)}" if found is not None else ""
    if n_alike == 1:
        return f"No split like it{n}"
    return f"The same split in {n_alike} layers{n}"


def _statistics(found: Statistics | None) -> str:
    if found is None:
        return "not run yet"
    figures = (
        ("p50", found.p50_ns),
        ("p95", found.p95_ns),
        ("min", found.min_ns),
        ("max", found.max_ns),
    )
    return "   ".join(f"{name} {ms(value)}" for name, value in figures) + f"{SPACE}ms"


def _total(times: SplitTimes, found: Statistics | None) -> str:
    if found is None:
        return ""
    whole_ns = times.wall_ns * (times.n_steps if times.is_median else 1)
    of = "the prompt" if not times.is_median else plural(times.n_steps, "token")
    share = f", {percent_text(found.sum_ns / whole_ns)} of {of}" if whole_ns > 0 else ""
    return f"Sum {ms(found.sum_ns)}{SPACE}ms{share}."


def _share(own_ns: float, times: SplitTimes) -> str:
    if np.isnan(own_ns) or not times.wall_ns > 0:
        return NOTHING
    return f"{count(100 * own_ns / times.wall_ns, 2)}{SPACE}%"


def _whole(table: PlanTable, times: SplitTimes) -> str:
    word = BATCH_WORDS[table.batch]
    return f"a {word}, median of {count(times.n_steps)}" if times.is_median else word


def _ms(ns: float) -> str:
    return NOTHING if np.isnan(ns) else f"{ms(ns)}{SPACE}ms"
