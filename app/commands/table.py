"""The commands and the menus."""

from __future__ import annotations

from dataclasses import replace

from app.commands.spec import SEPARATOR, ActionSpec, Need

_COMPUTE = Need.ENGINE | Need.MODEL | Need.PLAN | Need.GRAPH | Need.RUNNABLE | Need.IDLE
_OPEN = Need.ENGINE | Need.IDLE
_EXPORT = Need.ENGINE | Need.TRACE | Need.HELD | Need.IDLE

RUN = ActionSpec("run", "Run", "Run the prompt", ("F5",), _COMPUTE | Need.PROMPT, "run")
EMBED = replace(RUN, text="Embed", tip="Embed the text", needs=_COMPUTE | Need.TEXT)
"""What stands in the place of Run for a model that gives embeddings."""

ACTIONS: tuple[ActionSpec, ...] = (
    ActionSpec("open", "Open…", "Open a GGUF file", ("Ctrl+O",), _OPEN, "open"),
    ActionSpec("open_demo", "Demo model", "Open the demo model; it is fetched once", needs=_OPEN),
    ActionSpec("quit", "Quit", "Close the window and end the engine", ("Ctrl+Q",)),
    ActionSpec("undo", "Undo", "Undo the last change of an option", ("Ctrl+Z",), icon="undo"),
    ActionSpec("redo", "Redo", "Do it again", ("Ctrl+Y", "Ctrl+Shift+Z"), icon="redo"),
    ActionSpec(
        "copy_command", "Copy as llama.cpp command", "Copy the command line with these options",
        ("Ctrl+Shift+C",), Need.MODEL | Need.PLAN, "copy",
    ),
    ActionSpec(
        "reset_options", "Reset options", "Give every option llama.cpp's default",
        needs=Need.ENGINE | Need.PLAN,
    ),
    ActionSpec(
        "show_options", "Options", "Show every option of llama.cpp's", ("Ctrl+,",), Need.PLAN
    ),
    ActionSpec(
        "batch_prompt", "Prompt batch", "Show the plan of a prompt batch", ("Ctrl+1",), Need.PLAN,
        checkable=True, group="batch",
    ),
    ActionSpec(
        "batch_token", "One token", "Show the plan of one token", ("Ctrl+2",),
        Need.PLAN | Need.TOKENS,
        checkable=True, group="batch",
    ),
    ActionSpec("next_pane", "Next pane", "Go to the next pane", ("F6",)),
    ActionSpec("previous_pane", "Previous pane", "Go to the pane before", ("Shift+F6",)),
    ActionSpec(
        "menu_bar", "Menus", "Go to the menus; Alt and a letter opens one of them", ("F10",)
    ),
    ActionSpec(
        "theme_system", "As the system", "Follow the system's colours", checkable=True,
        group="theme",
    ),
    ActionSpec("theme_light", "Light", "Light colours", checkable=True, group="theme"),
    ActionSpec("theme_dark", "Dark", "Dark colours", checkable=True, group="theme"),
    ActionSpec(
        "switch_theme", "Switch light and dark", "The other colours", ("Ctrl+Shift+L",)
    ),
    ActionSpec("reset_layout", "Reset layout", "Put every pane back in its place"),
    RUN,
    ActionSpec("stop", "Stop", "Stop what is running", ("Shift+F5", "Esc"), Need.BUSY, "stop"),
    ActionSpec(
        "op_offload", "op_offload", "Run operations of CPU layers on the GPU in large batches",
        ("Ctrl+Shift+O",), Need.ENGINE | Need.PLAN, checkable=True,
    ),
    ActionSpec("restart_engine", "Restart engine", "End the engine's process and start it anew"),
    ActionSpec(
        "critical_path", "Critical path", "What bounded the selected step; the rest is dimmed",
        ("Ctrl+K",), checkable=True,
    ),
    ActionSpec(
        "export", "Export trace…", "Write the recorded run for Perfetto", ("Ctrl+E",), _EXPORT,
        "export",
    ),
    ActionSpec(
        "export_chrome", "Export as Chrome trace…", "Write the recorded run as Chrome JSON",
        needs=_EXPORT,
    ),
    ActionSpec(
        "copy_embedding", "Copy embedding as JSON", "Copy every row of the embedding",
        needs=Need.EMBEDDING, icon="copy",
    ),
    ActionSpec(
        "save_embedding", "Save embedding…", "Write the rows as a NumPy file, .npy",
        needs=Need.EMBEDDING, icon="export",
    ),
    ActionSpec(
        "show_devices", "Devices", "Every device, those left out, and how each got here",
        ("Ctrl+D",),
    ),
    ActionSpec(
        "show_load_report", "Load report", "Every path that was tried to load backends",
        ("Ctrl+Shift+D",),
    ),
    ActionSpec(
        "load_backend", "Load backend…", "Load a plug-in or a library of ggml's from a file",
        ("Ctrl+L",), Need.ENGINE,
    ),
    ActionSpec(
        "load_backend_folder", "Load folder of backends…",
        "Load the best backends of a folder, such as a llama.cpp install", needs=Need.ENGINE,
    ),
    ActionSpec(
        "unload_backend", "Unload backend", "Take out the selected device's backend",
        needs=Need.ENGINE | Need.DEVICE | Need.LOADED | Need.IDLE,
    ),
    ActionSpec(
        "show_operations", "Operations", "Which operations of this model each device computes",
        ("Ctrl+M",), Need.PLAN,
    ),
    ActionSpec(
        "check_ops", "Check operations", "Check every operation of this model on every device",
        ("Ctrl+Shift+M",), Need.ENGINE | Need.MODEL | Need.PLAN | Need.GRAPH | Need.IDLE,
    ),
    ActionSpec(
        "copy_device", "Copy device as text", "Copy all that is known of the selected device",
        needs=Need.DEVICE, icon="copy",
    ),
    ActionSpec(
        "copy_device_json", "Copy device as JSON", "Copy the selected device as JSON",
        needs=Need.DEVICE,
    ),
    ActionSpec("manual", "Manual", "What the window shows, in one page", ("F1",)),
    ActionSpec(
        "manual_options", "Manual: options", "What each option does, and the trap it has",
        ("Shift+F1",),
    ),
    ActionSpec(
        "manual_backends", "Manual: backends",
        "Where devices come from, and why one is there and another is not",
    ),
    ActionSpec(
        "manual_operations", "Manual: operations",
        "What checking operations does, and what its table says",
    ),
    ActionSpec(
        "manual_several", "Manual: several devices",
        "How a model is shared among devices, and what each waited for",
    ),
    ActionSpec("keys", "Keys", "Every command and its keys", ("?", "Ctrl+F1")),
    ActionSpec("about", "About Splitscope", "Version and licence"),
)  # fmt: skip

RECENT = "recent"
PANES = "panes"
THEME = "theme"
"""Places in a menu for what is made elsewhere: recent files, the panes' switches, themes."""

MENUS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("File", ("open", "open_demo", RECENT, SEPARATOR, "quit")),
    ("Edit", ("undo", "redo", SEPARATOR, "copy_command", "reset_options")),
    (
        "View",
        (
            "batch_prompt", "batch_token", "show_options", SEPARATOR, PANES, "next_pane",
            "previous_pane", "menu_bar", SEPARATOR, THEME, "reset_layout",
        ),
    ),
    (
        "Run",
        (
            "run", "stop", SEPARATOR, "copy_embedding", "save_embedding", SEPARATOR, "op_offload",
            SEPARATOR, "restart_engine",
        ),
    ),
    (
        "Devices",
        (
            "show_devices", "show_load_report", SEPARATOR, "load_backend", "load_backend_folder",
            "unload_backend", SEPARATOR, "show_operations", "check_ops", SEPARATOR, "copy_device",
            "copy_device_json",
        ),
    ),
    ("Trace", ("critical_path", SEPARATOR, "export", "export_chrome")),
    (
        "Help",
        (
            "manual", "manual_options", "manual_backends", "manual_operations", "manual_several",
            "keys", SEPARATOR, "about",
        ),
    ),
)  # fmt: skip

PANE_KEYS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    (
        "Graph",
        (
            ("Arrows", "The next operation, the next layer"),
            ("Enter", "Open or close the layer"),
            ("W", "Why the selected operation is where it is"),
            ("+ and -, or the wheel", "Zoom"),
            ("Space", "Show all of it"),
            ("Esc", "Close the layer, then end the selection"),
        ),
    ),
    (
        "Timeline",
        (
            ("W and S, + and -, or Ctrl and the wheel", "Zoom"),
            ("the wheel", "Scroll the lanes; zoom where all of them are in view"),
            ("A and D, Left and Right, or Shift and the wheel", "Pan"),
            ("F", "Show the selection; again: the whole run"),
            ("0", "Show the whole run"),
            (", and .", "The slice before, the next slice of the lane"),
            ("[ and ]", "Along the flow: from a split to its copy and back"),
            ("J", "From an idle moment to what the device waited for"),
            ("Esc", "End the range, then the selection"),
        ),
    ),
    (
        "Layers and memory",
        (
            ("Arrows", "The next layer, the next part of a bar"),
            ("Home and End", "The first layer, the last layer"),
        ),
    ),
    (
        "Devices, load report and operations",
        (("Up and Down", "The next row"), ("Ctrl+C", "Copy the selected row")),
    ),
    (
        "Splits",
        (("Up and Down", "The next split"), ("Enter or Space", "Unfold or fold alike layers")),
    ),
)
"""Keys that only act while their pane has the focus; the panes handle them themselves."""

THEME_MENU = ("theme_system", "theme_light", "theme_dark", SEPARATOR, "switch_theme")
