"""A panel without an engine: the small model's plan, and what the panel asked for."""

from app.commands.actions import ActionSet
from app.commands.table import ACTIONS
from app.state.app_state import AppState
from app.theme.theme import Theme, ThemeChoice
from app.views import options
from app.views.options.fields import TextField
from engine.core.summary import ModelSummary, TensorSummary
from tests.app.models import paper_run

MIB = 2**20
NAMES = ("attn_q", "attn_k", "ffn_up", "ffn_gate", "ffn_down")
TENSORS = tuple(
    TensorSummary(f"blk.{layer}.{name}.weight", "q4_1", (64, 64), MIB)
    for layer in range(3)
    for name in NAMES
)


def model(n_expert: int = 0) -> ModelSummary:
    return ModelSummary(
        path="/m/small.gguf", name="small", arch="llama", quantization="q4_1", file_bytes=1,
        weight_bytes=15 * MIB, n_layers=3, n_embd=64, n_head=1, n_head_kv=1, n_vocab=8,
        n_ctx_train=512, tensors=TENSORS, has_chat_template=False, n_expert=n_expert,
    )  # fmt: skip


def nothing() -> None:
    """Stand for what a command does."""


class Panel:
    """The view and its surroundings; `asked` are the changes it asked for, in order."""

    def __init__(self, theme: ThemeChoice = ThemeChoice.LIGHT, n_expert: int = 0) -> None:
        self.state = AppState()
        self.theme = Theme(theme)
        handlers = {spec.id: nothing for spec in ACTIONS}
        self.actions = ActionSet(ACTIONS, handlers, self.theme, self.state)
        self.view = options.make(self.state, self.theme, self.actions)
        self.view.setStyleSheet(self.theme.stylesheet())
        self.asked: list[dict[str, object]] = []
        self.view.asked.connect(self.asked.append)
        self.state.set_model(model(n_expert))
        self.state.set_plans(paper_run.plans())

    def type(self, field: str, text: str) -> None:
        """Type into a field and press Enter."""
        control = self.view.rows[field].control
        assert isinstance(control, TextField)
        control.setText(text)
        control.textEdited.emit(text)
        control.editingFinished.emit()
