"""A matrix with every kind of verdict."""

from engine.core.op_matrix import OpMatrix, OpRow, OpSpeed, OpState, OpVerdict

SPEED = OpSpeed(median_ns=34_000, spread=0.05, n_runs=12, n_bytes=340_000, n_flops=68_000)
OK = OpVerdict(OpState.OK, 1e-7, 1.2e-9, speed=SPEED)
WRONG = OpVerdict(OpState.WRONG, 1e-7, 3.1e-2, "the error is above the bar")
FAILED = OpVerdict(OpState.FAILED, 1e-7, None, "its process ended", details="SIGSEGV")
REFUSED = OpVerdict(OpState.NOT_SUPPORTED, 1e-7)
UNCHECKED = OpVerdict(OpState.NOT_CHECKED, 0.0)
EXACT = OpVerdict(OpState.OK, 0.0, 0.0)

MATRIX = OpMatrix(
    ("OpenCL0", "CPU"),
    (
        OpRow("MUL_MAT", "q4_1", "q4_1 [576, 576], f32 [576, 512]", (OK, OK), 60, 60),
        OpRow("ROPE", "f32", "f32 [64, 9, 512]", (WRONG, OK), 30, 0),
        OpRow("SOFT_MAX", "f32", "f32 [512, 512, 9]", (FAILED, EXACT), 30, 30),
        OpRow("GET_ROWS", "q8_0", "q8_0 [576, 49152]", (REFUSED, UNCHECKED), 1, 1),
    ),
    is_stopped=True,
)
