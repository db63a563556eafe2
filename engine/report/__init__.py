"""What a session says of models, runs and traces: sums over what was planned and measured.

devices       devices for people
embeddings    whether embeddings are numbers, as data, and as a file
models        what is said of an opened file
prediction    what a run on paper would take, from its spans
run_progress  counts of a run in progress
run_sums      the sums of a finished run, from its spans
together      how several devices worked together: idle time and its causes, links, overlap
weight_places  why a weight is in the memory it is in
trace_names   the names that an exported trace needs beside its spans
"""
