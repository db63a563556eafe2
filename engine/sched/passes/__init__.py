"""The passes: each takes the problem and an assignment and gives the next one. Pure.

problem             what a pass may ask: the graph by slots, backends, memoised predicates
pass1_preallocated  tensors that already have a home
pass2_expand        spread assignments to neighbours, four sweeps
pass3_upgrade       the rest by their inputs; to a faster backend in the same memory
pass4_sources       what is left
pass5_split         splits and input copies
pass6_pipeline      user inputs with a tensor for each graph in flight
"""
