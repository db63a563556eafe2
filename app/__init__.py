"""The window. Qt only: every computation happens in the engine's process.

Packages, low to high; each knows those before it and none after.

theme     colours, fonts, words for numbers, painter helpers, the small widgets of the design
bridge    the engine's process and its answers as Qt signals
state     what the window knows, and what it remembers between starts
models    item models over plans and traces
commands  every action: menu, key, tooltip, from one table
views     one folder a view: widget and pure helpers
shell     main window, toolbar, answer, messages, controller
screen    whether a window can be opened here
main      create_app and the command line of the window
headless  the demo without a screen
"""
