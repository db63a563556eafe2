"""The panes of the window: each paints facts of AppState and knows no other pane.

canvas    Canvas: cached background, overlay, hover, tooltip, focus ring; every painter builds on it
rows      the row of every node: "in", layers, "out"
graph/    the matrix of layers and operations, with one layer opened
layers/   the strip of layers
"""
