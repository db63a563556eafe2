"""What stands below an option, and why one has no effect here. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app.theme.text import SPACE, count, percent_text, plural
from app.views.options.values import default_text
from engine.core.devices import DeviceType
from engine.core.options import DEFAULTS, SPEC_BY_FIELD, Redo, SplitMode

if TYPE_CHECKING:
    from app.state.app_state import AppState
    from engine.core.options import Options

_GPUS = (DeviceType.GPU, DeviceType.IGPU)

WHEN = {
    Redo.PLAN: "During a run it acts from the next graph on.",
    Redo.THREADS: "During a run it acts from the next graph on.",
    Redo.CONTEXT: "Weights or caches move: it applies at the next run.",
    Redo.SAMPLER: "It applies at the next run.",
}


@dataclass(frozen=True, slots=True)
class PanelFacts:
    """What the notes know of model and devices; `names` are all devices, `gpus` those to share."""

    names: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    n_layers: int = 0
    n_expert: int = 0
    n_ctx: int = 0
    n_copies: int = 1
    """Prompt graphs that may be under way at once."""
    pipeline_obstacle: str = ""
    """Why no more than one may, as a clause."""


def panel_facts(state: AppState, options: Options) -> PanelFacts:
    """The facts of what is open; a device on paper is known from the plan."""
    plans, model = state.plans, state.model
    rows = () if plans is None else plans.prompt.devices
    # Devices that -sm tensor joins are no device to name.
    types: dict[str, DeviceType] = {
        row.name: row.type for row in rows if row.type is not DeviceType.META
    }
    types |= {device.name: device.type for device in state.devices}
    gpus = tuple(name for name, kind in types.items() if kind in _GPUS)
    if options.devices is not None:
        named = [name.lower() for name in options.devices]
        gpus = tuple(sorted((g for g in gpus if g.lower() in named), key=_place_in(named)))
    return PanelFacts(
        names=tuple(types),
        gpus=gpus,
        n_layers=0 if plans is None else plans.n_layers,
        n_expert=0 if model is None else model.n_expert,
        n_ctx=0 if plans is None else plans.n_ctx,
        n_copies=1 if plans is None else plans.n_copies,
        pipeline_obstacle="" if plans is None else plans.pipeline_obstacle,
    )


def _place_in(names: list[str]) -> Any:
    return lambda name: names.index(name.lower())


def why_off(field: str, options: Options, facts: PanelFacts) -> str:
    """Why an option has no effect now; empty if it has one."""
    if field == "main_gpu" and options.split_mode is not SplitMode.NONE:
        return "It acts with -sm none, where one GPU takes all layers."
    if field in ("tensor_split", "n_copies") and options.split_mode is SplitMode.NONE:
        return "It acts where GPUs share the layers: now one takes all of them (-sm none)."
    if field == "n_copies" and options.split_mode is not SplitMode.LAYER:
        return "It acts with -sm layer, where one GPU can begin the next graph."
    if field in ("tensor_split", "n_copies") and len(facts.gpus) < 2:
        return f"It needs two GPUs; there {_are(len(facts.gpus))}."
    if field in ("cpu_moe", "n_cpu_moe") and not facts.n_expert:
        return "This model has no experts."
    if field == "n_cpu_moe" and options.cpu_moe:
        return "The experts of every layer are there already (-cmoe)."
    return ""


def _are(n: int) -> str:
    return {0: "is none", 1: "is one"}.get(n, f"are {n}")


def note(field: str, text: str, options: Options, facts: PanelFacts) -> str:
    """What a value comes to here; `text` is what is in the field, typed or set."""
    if field == "split_mode":
        return split_words(options.split_mode, facts.gpus)
    if field == "tensor_split":
        return shares_words(text, facts.gpus)
    if field == "n_copies":
        return pipeline_words(facts)
    if field == "main_gpu":
        return ", ".join(f"{i} is {name}" for i, name in enumerate(facts.gpus))
    if field == "devices":
        return f"There are {', '.join(facts.names)}." if facts.names else ""
    if field == "n_cpu_moe":
        return f"of {plural(facts.n_layers, 'layer')}"
    if field == "n_ctx" and not options.n_ctx and facts.n_ctx:
        return f"{count(facts.n_ctx)}{SPACE}tokens"
    return ""


def split_words(mode: SplitMode, gpus: tuple[str, ...]) -> str:
    """What the GPUs share, where there are several."""
    if len(gpus) < 2:
        return ""
    names = " and ".join((", ".join(gpus[:-1]), gpus[-1]))
    return {
        SplitMode.NONE: "",
        SplitMode.LAYER: f"{names} have whole layers each.",
        SplitMode.ROW: f"{names} have rows of every matrix of the layers.",
        SplitMode.TENSOR: f"{names} work as one device: each has a share of every layer.",
    }[mode]


def pipeline_words(facts: PanelFacts) -> str:
    """Whether prompt graphs are under way at once in the plan, and if not, why."""
    if facts.n_copies > 1:
        return f"Pipeline on: up to {facts.n_copies} graphs of a prompt at once."
    if facts.pipeline_obstacle:
        return f"Pipeline off: {facts.pipeline_obstacle}."
    return ""


def shares_words(text: str, gpus: tuple[str, ...]) -> str:
    """What shares come to: "GPU0 75.0 %, GPU1 25.0 %"; shares that are still typed count."""
    shares = [_share(part) for part in text.replace("/", ",").split(",")]
    used = (*shares, *(0.0,) * len(gpus))[: len(gpus)]
    if not sum(used):
        return f"{' and '.join(gpus)} share as their memory is free."
    words = [
        f"{name} {percent_text(share / sum(used))}" for name, share in zip(gpus, used, strict=True)
    ]
    spare = len(shares) - len(gpus)
    more = f"; {plural(spare, 'share')} too many" if spare > 0 else ""
    return ", ".join(words) + more


def _share(text: str) -> float:
    try:
        return max(float(text), 0.0)
    except ValueError:
        return 0.0


def tip(field: str) -> str:
    """The tooltip: what it does, its flags, its default, when a change acts."""
    spec = SPEC_BY_FIELD[field]
    flags = ", ".join(spec.flags)
    is_off_flag = spec.kind is bool and getattr(DEFAULTS, field)
    said = f"Off is {flags}" if is_off_flag else f"On is {flags}" if spec.kind is bool else flags
    lines = (spec.help, f"{said}; default: {default_text(field)}.", WHEN[spec.redo])
    return "\n".join(lines)
