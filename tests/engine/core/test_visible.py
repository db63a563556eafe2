"""What a file calls its tensors reaches neither a terminal nor a line of ours as it is."""

import pytest

from engine.core.visible import visible


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("blk.0.attn_q.weight", "blk.0.attn_q.weight"),
        ("h\u00e9llo w\u00f6rld", "h\u00e9llo w\u00f6rld"),
        ("a\x1b[31mb", "a\\x1b[31mb"),
        ("a\r\nb\tc", "a\\r\\nb\\tc"),
        ("\x9b2J", "\\x9b2J"),
        ("a\u202eb", "a\\u202eb"),
        ("\ud83d", "\\ud83d"),
        ("\U0001f600 \u00a0", "\U0001f600 \u00a0"),
    ],
)
def test_what_moves_a_cursor_is_written_out(name, shown):
    assert visible(name) == shown


def test_what_a_text_may_have_is_kept():
    assert visible("a\n\tb\x07", keeps="\n\t") == "a\n\tb\\x07"
