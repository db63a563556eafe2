"""The command line twin of the window: `python -m engine COMMAND`, one file a command.

parser    arguments, from the options table
main      the commands and their errors
output    tables for people, JSON for programs
fetch     the demo model
devices   devices of this machine, and those left out
plan      both plans, with their memory
splits    the split table
memory    the ledger
why       why a node is where it is
run       generate, measured
score     feed given tokens, compare
trace     run and write a trace file
"""
