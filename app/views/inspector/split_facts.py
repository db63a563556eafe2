"""The figures of the split card. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from app.models.alike import alike_ids, alike_in, split_kinds
from app.models.expert_words import expert_words
from app.models.plan_words import (
    BATCH_WORDS,
    REASON_WORDS,
    copies_of,
    expert_copy_of,
    n_computed,
)
from app.theme.text import NOTHING, SPACE, count, kib, ms, percent_text, plural
from engine.trace.metrics import statistics, step_sums
from engine.trace.records import SpanKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from app.models.split_times import SplitTimes
    from engine.core.table import PlanTable
    from engine.trace.metrics import Statistics

    _Alike = tuple[SplitTimes, npt.NDArray[np.int64]]

N_BINS = 16
MAX_NAMES = 2


@dataclass(frozen=True, slots=True, eq=False)
class SplitFacts:
    """A split's measured figures in words.

    `alike_ns` has the times for the histogram: of a prompt one a layer and graph, of a token one a
    layer, the median. `own_ns` is the split's among them.

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
    table: PlanTable,
    times: SplitTimes,
    split_id: int,
    *,
    step: int = -1,
    others: Sequence[tuple[PlanTable, SplitTimes]] = (),
) -> SplitFacts:
    """What a run measured of one split, and of the splits like it; experts are those of `step`.

    `others`: the other plans of the batch that the run met. The graphs of a pipeline have plans of
    their own, one a slot.
    """
    own_ns = float(times.split_ns[split_id])
    alike = _alike(table, times, split_id, others)
    alike_spans = np.concatenate([of.split_spans(ids) for of, ids in alike])
    found = statistics(alike_spans)
    alike_ns = np.concatenate([of.split_ns[ids] for of, ids in alike])
    bar_ns = own_ns
    if not times.is_median:
        alike_ns = step_sums(alike_spans).duration_ns.astype(np.float64)
        bar_ns = _one_ns(times, split_id, step)
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
        alike_title=_alike_title(len(alike[0][1]), found, is_median=times.is_median),
        alike_ns=alike_ns[~np.isnan(alike_ns)],
        own_ns=bar_ns,
        statistics=_statistics(found),
        total=_total([of for of, _ in alike], found),
    )


def _alike(
    table: PlanTable,
    times: SplitTimes,
    split_id: int,
    others: Sequence[tuple[PlanTable, SplitTimes]],
) -> list[_Alike]:
    """The splits like one: of its own plan, then of each other that has any."""
    own = (times, alike_ids(split_kinds(table), split_id))
    more = ((of, alike_in(plan, table, split_id)) for plan, of in others)
    return [own, *(found for found in more if len(found[1]))]


def _one_ns(times: SplitTimes, split_id: int, step: int) -> float:
    """How long a split of a prompt took in a step; without that in the middle of its steps."""
    sums = step_sums(times.split_spans(np.array([split_id])))
    of_step = sums.duration_ns[sums.step == step]
    chosen = of_step if len(of_step) else sums.duration_ns
    return float(np.median(chosen)) if len(chosen) else np.nan


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


def _alike_title(n_alike: int, found: Statistics | None, *, is_median: bool) -> str:
    """`n_alike` are those of one plan; `found` is of all graphs."""
    n = f", n = {count(found.n)}" if found is not None else ""
    if n_alike > 1:
        return f"The same split in {n_alike} layers{n}"
    if found is not None and found.n > 1 and not is_median:
        return f"The same split in {count(found.n)} graphs"
    return f"No split like it{n}"


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


def _total(all_times: Sequence[SplitTimes], found: Statistics | None) -> str:
    """Their sum, of the prompt or of all tokens that the plans computed."""
    if found is None:
        return ""
    whole_ns, of = all_times[0].wall_ns, "the prompt"
    if all_times[0].is_median:
        whole_ns = sum(times.wall_ns * times.n_steps for times in all_times)
        of = plural(sum(times.n_steps for times in all_times), "token")
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
