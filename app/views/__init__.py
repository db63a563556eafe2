"""The panes of the window: each paints facts of AppState and knows no other pane.

canvas      Canvas: cached background, overlay, hover, tooltip, focus ring; for all painters
table       RowsTable: rows of facts, with badges, sorted by a click on a head, copied
sheet       Sheet: a pane of a table, words below it and a footer with buttons
rows        the row of every node: "in", layers, "out"
graph/      the matrix of layers and operations, with one layer opened
layers/     the strip of layers
splits/     the table of splits
inspector/  why a node is where it is, and what its split took
options/    every option, in foldable sections
memory/     what each device's memory holds
devices/    every device, those left out, and how each got here
load_report/  every path that was tried to load backends
operations/  which operations of the open model each device computes, and how right
timeline/   what a run measured, on a time axis
"""
