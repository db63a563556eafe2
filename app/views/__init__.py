"""The panes of the window: each paints facts of AppState and knows no other pane.

canvas      Canvas: cached background, overlay, hover, tooltip, focus ring; for all painters
rows        the row of every node: "in", layers, "out"
graph/      the matrix of layers and operations, with one layer opened
layers/     the strip of layers
splits/     the table of splits
inspector/  why a node is where it is, and what its split took
options/    every option, in foldable sections
memory/     what each device's memory holds
timeline/   what a run measured, on a time axis
"""
