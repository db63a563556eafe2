"""What each command does; every one has a form for people and one for programs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from engine.cli.output import MIB, kib, mib, plain, print_json, print_table
from engine.cli.parser import with_given
from engine.core.explain import explain
from engine.core.placement import SplitReason
from engine.core.plan import Batch
from engine.core.summary import Progress, RunSummary
from engine.core.table import PlanSetTable, PlanTable
from engine.core.why_text import why_text
from engine.errors import ModelError
from engine.model.fetch import fetch_demo
from engine.session import Listeners, Session

REASONS = {
    SplitReason.FIRST: "first",
    SplitReason.BACKEND_CHANGED: "other device",
    SplitReason.WEIGHT_ELSEWHERE: "another weight",
    SplitReason.TOO_MANY_INPUTS: "too many inputs",
}


class ProgressLine:
    """Progress on one line of standard error, where a person looks at it."""

    def __init__(self) -> None:
        self._shown = False

    def __call__(self, progress: Progress) -> None:
        """Show how far a job is."""
        if not sys.stderr.isatty():
            return
        share = f"{100 * progress.done // progress.total} %" if progress.total else ""
        sys.stderr.write(f"\r\033[K{progress.label} {share}")
        sys.stderr.flush()
        self._shown = True

    def clear(self) -> None:
        """Take the line away."""
        if self._shown:
            sys.stderr.write("\r\033[K")
            self._shown = False


def open_session(args: argparse.Namespace, progress: ProgressLine, **listeners: Any) -> Session:
    """A session with the model open and the options set."""
    session = Session(
        virtual=args.virtual, listeners=Listeners(on_progress=progress, **listeners)
    )
    session.open(args.model)
    session.options = with_given(session.default_options(), args)
    progress.clear()
    return session


def fetch(args: argparse.Namespace) -> None:
    """Fetch the demo model and print where it is."""
    line = ProgressLine()
    path = fetch_demo(lambda done, total, label: line(Progress(label, done, total)))
    line.clear()
    if args.json:
        print_json({"path": path, "bytes": path.stat().st_size})
    else:
        print(path)


def devices(args: argparse.Namespace) -> None:
    """Devices of this machine, in priority order, and those left out with reasons."""
    session = Session(virtual=args.virtual)
    found, left_out = session.devices(), session.unavailable()
    if args.json:
        print_json({"devices": found, "unavailable": left_out})
        return
    print_table(
        ("device", "type", "free MiB", "total MiB", "description"),
        [
            (d.name, d.type.value, mib(d.memory_free), mib(d.memory_total),
             f"{d.description}{f' ({d.software})' if d.software else ''}")
            for d in found
        ],
    )  # fmt: skip
    for item in left_out:
        state = "hidden" if item.hidden else "not available"
        print(f"{item.name}: {state}, {item.reason}. {item.hint}".rstrip())


def plan(args: argparse.Namespace) -> None:
    """Both plans: nodes, splits and memory."""
    session = open_session(args, ProgressLine())
    plans = session.plan(session.options)
    if args.json:
        print_json({batch.value: plan_json(plans, batch) for batch in Batch})
        return
    print_headline(plans)
    print_splits(plans.plan(Batch(args.batch)))
    print()
    print_memory(plans)


def splits(args: argparse.Namespace) -> None:
    """The split table."""
    session = open_session(args, ProgressLine())
    table = session.plan(session.options).plan(Batch(args.batch))
    if args.json:
        print_json(splits_json(table))
    else:
        print_splits(table)


def memory(args: argparse.Namespace) -> None:
    """The ledger."""
    session = open_session(args, ProgressLine())
    plans = session.plan(session.options)
    if args.json:
        print_json(memory_json(plans))
    else:
        print_memory(plans)


def why(args: argparse.Namespace) -> None:
    """Why a node is where it is."""
    session = open_session(args, ProgressLine())
    table = session.plan(session.options).plan(Batch(args.batch))
    explanation = explain(table, table.slot(find_node(table, args.node)))
    if args.json:
        print_json(explanation)
    else:
        print(why_text(explanation))


def run(args: argparse.Namespace) -> None:
    """Generate, print what was measured, write a trace if asked to."""
    line = ProgressLine()
    listeners = {} if args.json else {"on_text": _echo}
    session = open_session(args, line, **listeners)
    if not args.json:
        print(args.prompt, end="", flush=True)
    summary = session.run(args.prompt, args.predict, chat=args.chat)
    if args.trace is not None:
        session.export_trace(args.trace, chrome=args.trace.suffix == ".json")
    if args.json:
        print_json(run_json(summary))
    else:
        print()
        print_run(summary)
    session.close()


def trace(args: argparse.Namespace) -> None:
    """Run and write a trace file."""
    args.trace = args.out
    run(args)
    if not args.json:
        print(f"trace in {args.out}")


def score(args: argparse.Namespace) -> None:
    """Feed given tokens and compare choices."""
    session = open_session(args, ProgressLine())
    result = session.score(args.prompt, args.tokens)
    if args.logits is not None:
        save_logits(args.logits, np.stack(result.logits))
    if args.json:
        print_json({"prompt_tokens": result.prompt_tokens, "steps": result.steps})
    else:
        print_table(
            ("step", "token", "argmax", "gap"),
            [
                (str(i), str(step.token), str(step.argmax), f"{step.gap:.4f}")
                for i, step in enumerate(result.steps)
            ],
        )
    session.close()


def _echo(text: str) -> None:
    print(text, end="", flush=True)


def save_logits(path: Path, logits: np.ndarray) -> None:
    """Write logits; ExportError-like words when the folder does not allow it."""
    try:
        with path.open("wb") as file:
            np.save(file, logits, allow_pickle=False)
    except OSError as error:
        raise ModelError(
            "The logits cannot be written.",
            f"{error.strerror}.",
            f"Choose a folder you may write in, other than that of {path}",
        ) from error


def find_node(table: PlanTable, text: str) -> int:
    """The node that `#index` or `name@occurrence` names; ModelError lists what is possible."""
    if text.startswith("#") and text[1:].isdigit():
        node_id = int(text[1:])
        if node_id >= table.n_nodes:
            raise ModelError(
                f"There is no node {text}.", f"This plan has nodes #0 to #{table.n_nodes - 1}."
            )
        return node_id
    name, _, occurrence = text.rpartition("@")
    if name and occurrence.isdigit():
        wanted: int | None = int(occurrence)
    else:
        name, wanted = text, None
    same = [i for i in range(table.n_nodes) if table.name[table.slot(i)] == name]
    if not same:
        raise ModelError(
            f"There is no node called {name}.", hint="See: python -m engine plan MODEL --json"
        )
    if wanted is None and len(same) == 1:
        return same[0]
    if wanted is not None and wanted < len(same):
        return same[wanted]
    listed = ", ".join(
        f"{name}@{i} (#{node_id} {table.op[table.slot(node_id)]})"
        for i, node_id in enumerate(same)
    )
    raise ModelError(f"{len(same)} nodes are called {name}.", f"They are {listed}.", "Name one.")


def plan_json(plans: PlanSetTable, batch: Batch) -> dict[str, Any]:
    """One plan as the contract of `plan --json` says."""
    table = plans.plan(batch)
    return {
        "n_tokens": table.shape.n_tokens,
        "n_kv": table.shape.n_kv,
        "n_outputs": table.shape.n_outputs,
        "flash_attn": plans.flash_attn,
        "nodes": [_node_json(table, node_id) for node_id in range(table.n_nodes)],
        "splits": splits_json(table),
        "memory": memory_json(plans),
    }


def _node_json(table: PlanTable, node_id: int) -> dict[str, Any]:
    slot = table.slot(node_id)
    return {
        "id": node_id,
        "op": table.op[slot],
        "name": table.name[slot],
        "ne": [int(n) for n in table.ne[slot]],
        "type": table.type_label(slot),
        "backend": table.devices[int(table.backend[slot])].name,
        "cause": table.tag(slot),
        "pass": table.cause(slot).kind.step,
        "split": int(table.split[node_id]),
    }


def splits_json(table: PlanTable) -> list[dict[str, Any]]:
    """The split table with its inputs."""
    rows = []
    for split_id, row in enumerate(table.splits):
        first = int(row["first_copy"])
        inputs = range(first, first + int(row["n_copies"]))
        rows.append(
            {
                "id": split_id,
                "backend": table.devices[int(row["backend"])].name,
                "start": int(row["start"]),
                "stop": int(row["stop"]),
                "reason": table.split_reason(split_id).name.lower(),
                "inputs": [
                    {"name": table.copy_name(i), "bytes": int(table.copies[i]["bytes"])}
                    for i in inputs
                ],
            }
        )
    return rows


def memory_json(plans: PlanSetTable) -> dict[str, dict[str, int]]:
    """Bytes by buffer type and kind."""
    result: dict[str, dict[str, int]] = {}
    for row in plans.memory.rows:
        kinds = result.setdefault(row.buft.name, {"model": 0, "kv": 0, "compute": 0, "output": 0})
        kinds[row.kind.value] += row.n_bytes
    return result


def run_json(summary: RunSummary) -> dict[str, Any]:
    """A run as the contract of `run --json` says."""
    result: dict[str, Any] = plain(summary)
    for copy in result["copies"]:
        copy["bytes"] = copy.pop("n_bytes")
    return result


def print_headline(plans: PlanSetTable) -> None:
    """How many nodes where, how many splits, how much is copied."""
    prompt, token = plans.prompt, plans.token
    where = ", ".join(
        f"{count} on {device.name}"
        for device, count in zip(prompt.devices, prompt.nodes_per_device(), strict=True)
        if count
    )
    print(
        f"{prompt.n_nodes} nodes: {where} · {len(prompt.splits)} splits for the prompt, "
        f"{len(token.splits)} for a token · {mib(prompt.copied_bytes)} MiB copied per prompt batch"
    )
    shape = prompt.shape
    print(
        f"planned for {shape.n_tokens} tokens at full context ({shape.n_kv} cells), "
        f"flash attention {'on' if plans.flash_attn else 'off'}\n"
    )


def print_splits(table: PlanTable) -> None:
    """The split table for people."""
    print_table(
        ("#", "device", "first node", "nodes", "copies", "in KiB", "begins because"),
        [
            (
                str(i),
                table.devices[int(row["backend"])].name,
                table.split_name(i),
                str(int(row["stop"] - row["start"])),
                str(int(row["n_copies"])),
                kib(int(row["bytes"])),
                REASONS[table.split_reason(i)],
            )
            for i, row in enumerate(table.splits)
        ],
    )


def print_memory(plans: PlanSetTable) -> None:
    """The ledger for people."""
    rows = [
        (name, *(mib(kinds[kind]) for kind in ("model", "kv", "compute", "output")),
         mib(sum(kinds.values())))
        for name, kinds in memory_json(plans).items()
    ]  # fmt: skip
    print_table(("buffer type", "model", "kv", "compute", "output", "sum MiB"), rows)
    for device in plans.prompt.devices:
        needed = plans.memory.total(device.name)
        if device.memory_free and needed > device.memory_free:
            over = mib(needed - device.memory_free)
            print(f"Does not fit: {device.name} needs {mib(needed)} MiB, over by {over} MiB.")


def print_run(summary: RunSummary) -> None:
    """Speeds and sums of a run."""
    decode = f"{summary.decode_tokens_per_s:.1f} tokens/s" if summary.decode_step_ns else "not run"
    print(
        f"prompt {len(summary.prompt_tokens)} tokens, {summary.prefill_tokens_per_s:.1f} tokens/s"
        f" · generation {len(summary.tokens)} tokens, {decode} · ended: {summary.stop_reason.value}"
    )
    for batch in Batch:
        rows = [row for row in summary.splits if row.batch == batch.value and row.time_ns]
        copies = [row for row in summary.copies if row.batch == batch.value and row.time_ns]
        if rows:
            moved = sum(row.n_bytes for row in copies) / MIB
            print(f"{batch.value}: {len(rows)} splits, {len(copies)} copies, {moved:.2f} MiB a graph")
