"""WeightList: what an architecture asks of a file, written down in llama.cpp's order."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from engine.core.ops import Op
from engine.model.arch_keys import TOKEN_EMBEDDING
from engine.model.weights import LayerClass, WeightKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from engine.model.hparams import Hparams

OUTPUT_WEIGHT = "output.weight"


class WeightList:
    """Collects weights. Names are without `blk.N.`, shapes in ggml order."""

    def __init__(self) -> None:
        self._kinds: list[WeightKind] = []
        self._asked_by: tuple[str, ...] = ()

    def _add(self, *kinds: WeightKind) -> None:
        asked_by = self._asked_by
        if asked_by:
            kinds = tuple(k if k.asked_by else k._replace(asked_by=asked_by) for k in kinds)
        self._kinds.extend(kinds)

    @contextmanager
    def asked_by(self, *keys: str) -> Iterator[None]:
        """What is written down meanwhile is there because of one of these keys' values.

        Who lacks a tensor is told of the first key that the file has, else of the last.
        """
        before, self._asked_by = self._asked_by, keys
        yield
        self._asked_by = before

    def input(self, name: str, op: Op, *ne: int, required: bool = True) -> None:
        """A weight of the input layer, which is the CPU's."""
        self._add(WeightKind(name, -1, LayerClass.INPUT, op, ne, required))

    def output(
        self, name: str, op: Op, *ne: int, required: bool = True, stand_in: str = ""
    ) -> None:
        """A weight of the output layer; `stand_in` serves where a file lacks it."""
        self._add(WeightKind(name, -1, LayerClass.OUTPUT, op, ne, required, stand_in))

    def layer(self, il: int, name: str, op: Op, *ne: int, required: bool = True) -> None:
        """A weight of layer `il`."""
        self.shared(il, f"blk.{il}.{name}", op, *ne, required=required)

    def shared(self, il: int, name: str, op: Op, *ne: int, required: bool = True) -> None:
        """A weight that layer `il` uses and that has one name for all layers."""
        self._add(WeightKind(name, il, LayerClass.REPEATING, op, ne, required))

    def matrix(self, il: int, name: str, n_in: int, n_out: int) -> None:
        """A matrix of layer `il`."""
        self.layer(il, f"{name}.weight", Op.MUL_MAT, n_in, n_out)

    def norm(self, il: int, name: str, n: int, *, required: bool = True) -> None:
        """The weight of a norm of layer `il`."""
        self.layer(il, f"{name}.weight", Op.MUL, n, required=required)

    def bias(self, il: int, name: str, n: int, *, required: bool = False) -> None:
        """A bias of layer `il`, which a file may lack where it is not `required`."""
        self.layer(il, f"{name}.bias", Op.ADD, n, required=required)

    def biased_norm(self, il: int, name: str, n: int) -> None:
        """Weight and bias of a norm of layer `il`."""
        self.norm(il, name, n)
        self.bias(il, name, n, required=True)

    def biased_matrix(self, il: int, name: str, n_in: int, n_out: int) -> None:
        """A matrix of layer `il` and its bias."""
        self.matrix(il, name, n_in, n_out)
        self.bias(il, name, n_out, required=True)

    def embedding_and_head(self, hp: Hparams, *, tied: bool | None = None) -> None:
        """Token embeddings, the last norm and the output.

        `tied`: whether the embeddings serve as the output; None: where a file has no output.
        """
        ne = (hp.n_embd, hp.n_vocab)
        self.input(TOKEN_EMBEDDING, Op.GET_ROWS, *ne)
        self.output("output_norm.weight", Op.MUL, hp.n_embd)
        if tied:
            self._add(
                WeightKind(
                    TOKEN_EMBEDDING, -1, LayerClass.OUTPUT, Op.MUL_MAT, ne, serves=OUTPUT_WEIGHT
                )
            )
            return
        stand_in = TOKEN_EMBEDDING if tied is None else ""
        self.output(OUTPUT_WEIGHT, Op.MUL_MAT, *ne, stand_in=stand_in)

    def classifier(self, hp: Hparams, *, has_hidden: bool) -> None:
        """What a model that ranks texts makes scores with: loaded, and used by no other pooling.

        `has_hidden`: whether a file may have a layer before the scores, and biases.
        """
        shapes = {"cls.output": (hp.n_embd, hp.n_cls_out)}
        if has_hidden:
            shapes = {"cls": (hp.n_embd, hp.n_embd), **shapes}
        for name, ne in shapes.items():
            self.output(f"{name}.weight", Op.MUL_MAT, *ne, required=False)
            if has_hidden:
                self.output(f"{name}.bias", Op.ADD, ne[1], required=False)

    def either(self, kinds: Sequence[WeightKind], unless: str) -> None:
        """Weights that are asked for only where a file lacks `unless`."""
        self._add(*(kind._replace(unless=unless) for kind in kinds))

    def given(self, kinds: Sequence[WeightKind], *names: str, unless: str = "") -> None:
        """Weights that are asked for only where a file has all `names`, and lacks `unless`."""
        self._add(*(kind._replace(given=names, unless=unless) for kind in kinds))

    def known_only(self, kinds: Sequence[WeightKind]) -> None:
        """Weights that a file may have and that are not loaded."""
        self._add(*(kind._replace(required=False, is_loaded=False) for kind in kinds))

    def finish(self) -> tuple[WeightKind, ...]:
        """All of them, in order."""
        return tuple(self._kinds)
