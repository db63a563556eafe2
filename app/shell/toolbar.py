"""Toolbar: Run, Stop, -ngl, ctx, op_offload, batch. Figures follow the plan, wishes are sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPushButton,
    QSlider,
    QToolBar,
    QWidget,
)

from app.shell.change_text import AT_NEXT_RUN, FROM_NEXT_GRAPH
from app.shell.context_box import OF_THE_MODEL, ContextBox
from app.theme.fonts import SMALL_PX, fixed_font
from app.theme.segment import Segment
from app.theme.switch import Switch
from app.theme.text import NOTHING
from engine.core.options import DEFAULTS
from engine.core.plan import Batch
from engine.core.summary import RunState

if TYPE_CHECKING:
    from PySide6.QtGui import QAction, QKeyEvent, QResizeEvent

    from app.commands.actions import ActionSet
    from app.shell.planning import Planning
    from app.state.app_state import AppState
    from app.theme.theme import Theme

HEIGHT_PX = 44
SLIDER_PX = 150
NARROW_SLIDER_PX = 112
NARROW_BELOW_PX = 1400

LAYERS_TIP = "Layers on the GPU, counted from the last; the output is one of them"
CONTEXT_TIP = "Tokens the model can look back on; the KV cache holds all of them"
OFFLOAD_TIP = "Run operations of CPU layers on the GPU in large batches (Ctrl+Shift+O)"


class Toolbar(QToolBar):
    """One row of controls."""

    def __init__(
        self,
        state: AppState,
        theme: Theme,
        planning: Planning,
        actions: ActionSet,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__("Controls", parent)
        self.setObjectName("controls")
        self.setMovable(False)
        self.setFixedHeight(HEIGHT_PX)
        self._state, self._theme, self._planning = state, theme, planning
        self._actions = actions
        self._n_max = 0
        # One widget with its own layout: a tool bar aligns single widgets to different heights.
        panel = QWidget(self)
        self._row = QHBoxLayout(panel)
        self._row.setContentsMargins(12, 0, 12, 0)
        self._row.setSpacing(8)
        self.run_button = self._add_button("run", kind="primary")
        self.stop_button = self._add_button("stop", kind="")
        self._make_layers_control()
        self._make_context_control()
        self._make_offload_control()
        self._make_batch_control()
        self._row.addStretch()
        self.addWidget(panel)
        self._connect()
        self._sync()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Give way in width."""
        super().resizeEvent(event)
        narrow = self.width() < NARROW_BELOW_PX
        self.slider.setFixedWidth(NARROW_SLIDER_PX if narrow else SLIDER_PX)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Esc takes back what was typed into a field."""
        if event.key() == Qt.Key.Key_Escape and self.layers_field.hasFocus():
            self._show_field(self.slider.value())
        else:
            super().keyPressEvent(event)

    # Made once.

    def _add_button(self, action_id: str, kind: str) -> QPushButton:
        button = QPushButton(self)
        button.setProperty("kind", kind)
        button.setObjectName(f"{action_id}_button")
        button.clicked.connect(self._actions[action_id].trigger)
        self._row.addWidget(button)
        return button

    def _make_layers_control(self) -> None:
        self._add_rule()
        self.slider_label = self._add_label("-ngl", mono=True)
        self.slider = QSlider(Qt.Orientation.Horizontal, self)
        self.slider.setAccessibleName("-ngl, layers on the GPU")
        self.slider.setPageStep(4)
        self._row.addWidget(self.slider)
        self.layers_field = QLineEdit(self)
        self.layers_field.setFont(fixed_font(SMALL_PX))
        self.layers_field.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.layers_field.setAccessibleName("-ngl, layers on the GPU, as a number")
        metrics = self.layers_field.fontMetrics()
        self.layers_field.setFixedWidth(metrics.horizontalAdvance("88 / 888") + 22)
        self._row.addWidget(self.layers_field)

    def _make_context_control(self) -> None:
        self._add_label("ctx", mono=True)
        self.context_box = ContextBox(self._theme, self)
        self._row.addWidget(self.context_box)

    def _make_offload_control(self) -> None:
        self._add_rule()
        self._add_label("op_offload", mono=True)
        self.offload_switch = Switch("on", self._theme, self)
        self.offload_switch.setAccessibleName("op_offload")
        self.offload_switch.setChecked(DEFAULTS.op_offload)
        self.offload_switch.setMinimumWidth(
            32 + 8 + self.offload_switch.fontMetrics().horizontalAdvance("off") + 6
        )
        self._row.addWidget(self.offload_switch)

    def _make_batch_control(self) -> None:
        rule, label = self._add_rule(), self._add_label("Batch")
        choices = ((Batch.PROMPT, "prompt 512"), (Batch.TOKEN, "one token"))
        self.batch_segment = Segment(choices, "Batch", self)
        self._row.addWidget(self.batch_segment)
        self._batch_parts: tuple[QWidget, ...] = (rule, label, self.batch_segment)

    def _add_label(self, text: str, *, mono: bool = False) -> QLabel:
        label = QLabel(text, self)
        label.setProperty("role", "mono" if mono else "muted")
        self._row.addWidget(label)
        return label

    def _add_rule(self) -> QFrame:
        rule = QFrame(self)
        rule.setProperty("role", "rule")
        rule.setFixedSize(QSize(1, 20))
        self._row.addSpacing(4)
        self._row.addWidget(rule)
        self._row.addSpacing(4)
        return rule

    def _connect(self) -> None:
        self.slider.sliderPressed.connect(self._planning.begin_drag)
        self.slider.valueChanged.connect(self._on_slider_value)
        self.slider.sliderReleased.connect(self._on_slider_released)
        self.layers_field.editingFinished.connect(self._on_field)
        self.context_box.chosen.connect(self._on_context)
        self.offload_switch.clicked.connect(self._on_offload)
        self.batch_segment.chosen.connect(self._state.set_batch)
        self._planning.settled.connect(self._sync)
        for signal in (self._state.model_changed, self._state.plans_changed):
            signal.connect(self._on_model)
        self._state.plans_changed.connect(self._sync)
        self._state.run_changed.connect(self._sync)
        self._state.batch_changed.connect(self.batch_segment.choose)
        self._theme.changed.connect(self._tint)
        for action_id in ("run", "stop"):
            self._actions[action_id].changed.connect(self._sync_buttons)
        self._tint()
        self._sync_buttons()

    # What a person does.

    def _on_slider_value(self, value: int) -> None:
        self._show_field(value)
        if self.slider.isSliderDown():
            self._planning.preview(n_gpu_layers=value)
        else:
            self._planning.change(n_gpu_layers=value)

    def _on_slider_released(self) -> None:
        self._planning.change(n_gpu_layers=self.slider.value())

    def _on_field(self) -> None:
        typed = self.layers_field.text().partition("/")[0].strip()
        if typed.isdecimal() and int(typed) != self.slider.value():
            self.slider.setValue(min(int(typed), self._n_max))
        self._show_field(self.slider.value())

    def _on_context(self, n_ctx: int) -> None:
        self._planning.change(n_ctx=n_ctx)

    def _on_offload(self) -> None:
        self._planning.change(op_offload=self.offload_switch.isChecked())

    # What is shown.

    def _on_model(self) -> None:
        """For embeddings there is one kind of batch: nothing to switch."""
        for part in self._batch_parts:
            part.setVisible(not self._state.embeds)

    def _sync(self) -> None:
        """Show the newest options asked for, unless a hand is on the slider."""
        plans = self._state.plans
        is_idle = self._state.run.state is RunState.IDLE
        self._enable(has_plan=plans is not None, is_idle=is_idle)
        if plans is None:
            self.layers_field.setText(f"{NOTHING} / {NOTHING}")
            self.context_box.show_context(OF_THE_MODEL, 0, 0)
            return
        options = self._planning.options
        if not self.slider.isSliderDown():
            self._show_layers(options.n_gpu_layers, plans.n_layers + 1)
        if options.n_ctx == plans.options.n_ctx:
            model = self._state.model
            n_trained = 0 if model is None else model.n_ctx_train
            self.context_box.show_context(options.n_ctx, plans.n_ctx, n_trained)
        self.offload_switch.setChecked(options.op_offload)
        self.offload_switch.setText("on" if options.op_offload else "off")
        self.batch_segment.set_text(Batch.PROMPT, f"prompt {plans.n_ubatch}")
        self.batch_segment.choose(self._state.batch)

    def _show_layers(self, n: int, n_max: int) -> None:
        value = n_max if n < 0 or n > n_max else n
        self._n_max = n_max
        was_blocked = self.slider.blockSignals(True)
        self.slider.setRange(0, n_max)
        self.slider.setValue(value)
        self.slider.blockSignals(was_blocked)
        self._show_field(value)

    def _show_field(self, value: int) -> None:
        self.layers_field.setText(f"{value} / {self._n_max}")

    def _enable(self, *, has_plan: bool, is_idle: bool) -> None:
        """Every control plans during a run, too; its tooltip says when it acts."""
        moves_memory = "" if is_idle else f", {AT_NEXT_RUN}"
        moves_nothing = "" if is_idle else f", {FROM_NEXT_GRAPH}"
        tips: tuple[tuple[QWidget, str], ...] = (
            (self.slider, LAYERS_TIP + moves_memory),
            (self.layers_field, LAYERS_TIP + moves_memory),
            (self.context_box, CONTEXT_TIP + moves_memory),
            (self.offload_switch, OFFLOAD_TIP + moves_nothing),
            (self.batch_segment, "Which plan is shown: a prompt batch or one token"),
        )
        for control, tip in tips:
            control.setEnabled(has_plan)
            control.setToolTip(tip if has_plan else f"{tip}: open a model first")

    def _sync_buttons(self) -> None:
        for action_id, button in (("run", self.run_button), ("stop", self.stop_button)):
            action: QAction = self._actions[action_id]
            button.setText(action.text())
            button.setEnabled(action.isEnabled())
            button.setToolTip(action.toolTip())

    def _tint(self) -> None:
        self.run_button.setIcon(self._theme.inverse_icon("run"))
        self.stop_button.setIcon(self._theme.icon("stop"))
