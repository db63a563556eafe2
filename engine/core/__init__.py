"""Facts, no device behaviour: everything here is a value that can be compared, printed and sent.

types      every ggml tensor type: block size, bytes per block, name
ops        operations and their parameters
tensor     Tensor: shape, strides, operation, sources
graph      Graph: nodes and leafs in execution order
build      shape rules: one function an operation
build_recurrent  the same for operations that carry a state
rope       what ROPE needs of its parameters
quants     numpy reference: quantise and dequantise
quants_k   the same for super-blocks of 256
quants_iq  the same for formats with codebooks
codebooks  the points of those codebooks
block_parts  scales and numbers of a few bits, out of bytes
devices    DeviceFacts, BufferTypeFacts, BufferFacts, BackendView, rules of what a device can do
op_matrix  what checking single operations on devices found
load_report  what was tried to load backends, and how each got here
device_text  all that is known of a device, in words
repack     CPU_REPACK: which weights the CPU may keep interleaved
blas       which products a BLAS library takes
options    one table of every option
behaviour  what differs between two versions of the scheduler
placement  Assignment, Cause, Split, InputCopy, SplitTrace
rows       split memory (-sm row): which device holds which rows of a matrix
experts    which copies move used experts only, and in which pieces
shards     which part of a tensor each of several devices holds
plan       Plan, PlanSet, NodeKey, AllocationPlan, MemoryLedger
memory_pool  what several devices need of the computer's memory together
table      PlanTable: a plan as numpy columns, the form that views, the pipe and --json read
explain    a cause as a sentence for a person
diff       what a change of options changed, plan against plan
why_text   an explanation as plain text
visible    text from a file as it may be shown
summary    what is said of a model, a run and an engine
"""
