"""What was measured, as columns.

records   spans and marks: the dtype and what each field means
recorder  Recorder: appended to by any thread, read by seq
snapshot  TraceSnapshot: immutable chunks
pyramid   a lane of a timeline merged by 2, 4, 8, ... for drawing
metrics   pure functions: where a step's time went, per-split statistics
expert_use  pure functions: which experts were copied, what copying all would have been
export    one file a format: Perfetto protobuf, Chrome JSON
"""
