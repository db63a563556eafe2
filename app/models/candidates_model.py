"""CandidatesModel: what each device answered, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, Qt

from engine.core.explain import Test
from engine.core.why_text import answer_mark, shown_tests

if TYPE_CHECKING:
    from PySide6.QtCore import QObject

    from engine.core.explain import Explanation

_Index = QModelIndex | QPersistentModelIndex
_NO_PARENT = QModelIndex()

BACKEND_ROLE = Qt.ItemDataRole.UserRole
"""The device's backend id."""
FAILED_ROLE = Qt.ItemDataRole.UserRole + 1
"""Whether this is the first test that failed."""

_TIPS = {
    Test.SUPPORTS_OP: "Has the device a kernel for this operation with these types and shapes?",
    Test.SUPPORTS_BUFT: "Can it use the memory that decided, where it is?",
    Test.OFFLOAD_OP: "Does it want the operation although its weight must be copied in?",
    Test.REACHED: "Did a sweep of pass 2 arrive from this device first?",
}
_ANSWERS = {True: "yes", False: "no", None: "not asked"}


class CandidatesModel(QAbstractTableModel):
    """A row a device, in order of priority: device, tests, priority."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.explanation: Explanation | None = None
        self._breaks_titles = False
        self._tests: tuple[Test, ...] = ()

    def set_explanation(self, explanation: Explanation | None) -> None:
        """Show another explanation."""
        self.beginResetModel()
        self.explanation = explanation
        self._tests = () if explanation is None else shown_tests(explanation)
        self.endResetModel()

    def break_titles(self, breaks: bool) -> None:
        """Write the titles of tests in two lines, where the table is narrow."""
        if breaks != self._breaks_titles:
            self._breaks_titles = breaks
            last = self.columnCount() - 1
            self.headerDataChanged.emit(Qt.Orientation.Horizontal, 0, last)

    def title(self, section: int) -> str:
        """A column's title in one line."""
        test = self._test(section)
        return test.value if test else ("Device" if section == 0 else "prio")

    def rowCount(self, parent: _Index = _NO_PARENT) -> int:  # noqa: D102 - Qt calls it
        if parent.isValid() or self.explanation is None:
            return 0
        return len(self.explanation.candidates)

    def columnCount(self, parent: _Index = _NO_PARENT) -> int:  # noqa: D102 - Qt calls it
        return 0 if parent.isValid() else len(self._tests) + 2

    def headerData(  # noqa: D102 - Qt calls it
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> Any:
        if orientation is not Qt.Orientation.Horizontal or not 0 <= section < self.columnCount():
            return None
        test = self._test(section)
        if role == Qt.ItemDataRole.DisplayRole:
            title = self.title(section)
            return title.replace("_", "\n_") if self._breaks_titles else title
        if role == Qt.ItemDataRole.ToolTipRole:
            return _TIPS[test] if test else None
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return self._alignment(section)
        return None

    def data(self, index: _Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:  # noqa: D102 - Qt calls it
        if not index.isValid() or self.explanation is None:
            return None
        candidate = self.explanation.candidates[index.row()]
        test = self._test(index.column())
        if role == Qt.ItemDataRole.DisplayRole:
            if test is not None:
                return answer_mark(candidate, test)
            return candidate.device if index.column() == 0 else str(candidate.backend_id)
        if role == Qt.ItemDataRole.AccessibleTextRole and test is not None:
            return f"{candidate.device}, {test.value}: {_ANSWERS[getattr(candidate, test.value)]}"
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return self._alignment(index.column())
        if role == BACKEND_ROLE:
            return candidate.backend_id
        if role == FAILED_ROLE:
            return test is not None and candidate.first_failed is test
        return None

    def _test(self, column: int) -> Test | None:
        return self._tests[column - 1] if 0 < column <= len(self._tests) else None

    def _alignment(self, column: int) -> Qt.AlignmentFlag:
        side = Qt.AlignmentFlag.AlignLeft if column == 0 else Qt.AlignmentFlag.AlignRight
        if self._test(column) is not None:
            side = Qt.AlignmentFlag.AlignHCenter
        return side | Qt.AlignmentFlag.AlignVCenter
