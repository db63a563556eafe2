"""The scheduler: which backend runs each node, cut into splits, copied, allocated, computed.

passes       1 place_preallocated; 2 expand_gpu_down, expand_gpu_up, expand_rest_down,
             expand_rest_up; 3 upgrade; 4 assign_sources; 5 cut; 6 copy_inputs: pure functions
split_graph  run the passes in order and keep every state
run_graph    sources redirected to copies, the allocator's view of the graph
planner      plan_graph: all of the above, one frozen Plan
cross_reads  which results of a split others read
pipeline     the slots of graphs in flight, and their events
scheduler    Scheduler: reserve, alloc_graph, compute, synchronize, reset
execute      SplitRunner: the only place where a backend is told to compute
"""
