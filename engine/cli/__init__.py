"""The command line twin of the window: `python -m engine COMMAND`, one file a command.

main        choose the command, say its errors
argv        spellings that people type; unknown options and what is near
parser      arguments that commands share, from the options table
output      tables for people, JSON for programs; a standard output that takes nothing
files       output files, checked before anything runs
progress    how far a job is, on one line
interrupt   Ctrl-C: stop what runs, then end
sessions    a session with the model open and the options set
fits        which devices the memory of a plan fits
plan_words  plans for people
plan_data   plans for programs
predict_words  predictions of runs, for people and for programs
run_words   runs and what embedding took, for people and for programs
together_words  how several devices worked together in a run, for people and for programs
measuring   what commands that compute say besides their results, and their trace
fetch       the demo model
op_words    what checking operations found, for people
ops         single operations, checked and timed
devices     devices of this machine, those left out, and how each got here
device_words  a device and what was loaded, for people
tensors     what any GGUF file holds, known architecture or not
plan        both plans, with their memory
splits      the split table
memory      the ledger
why         why a node or a weight is where it is
run         generate, measured
embed       the embeddings of a text
score       feed given tokens, compare
trace       run and write a trace file
serve       the engine of a window
"""
