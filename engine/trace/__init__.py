"""What was measured, as columns.

records   spans and marks: the dtype and what each field means
recorder  Recorder: appended to by any thread, read by seq
snapshot  TraceSnapshot: immutable chunks
pyramid   a lane of a timeline merged by 2, 4, 8, ... for drawing
metrics   pure functions: where a step's time went, per-split statistics
lanes     pure functions: which lanes are devices, when they compute, when several do at once
links     pure functions: what was moved from lane to lane
causes    Causes: what each span waited for
chains    Chains: the way back from a span over what it waited for, without gaps
idle      pure functions: why devices were idle, and what was at fault
critical  pure functions: the chain of spans that bounded a step
expert_use  pure functions: which experts were copied, what copying all would have been
export    one file a format: Perfetto protobuf, Chrome JSON
"""
