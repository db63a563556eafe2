"""The OpenCL backend: GPUs, and CPUs through software drivers such as PoCL.

reg        create(): the backend family with its devices, or the reason why there are none
platforms  what the installed drivers offer
discovery  which devices are used, which are hidden or left out, and why
selfcheck  a device has to compute something right before it is offered
trial      that check in a process of its own, since a driver may end it
device     OpenClDevice: facts of the moment, memory held
rules      which operations, types and layouts have a kernel
readers    the types whose rows kernels read, and what each has beyond that
tuning     how work is cut into items on CPUs and on GPUs
arguments  KernelCall, and how its arguments are packed
encode     tensor -> kernel call: name, arguments, number of items (no device needed)
encode_attention   the same for ROPE, SOFT_MAX and FLASH_ATTN_EXT
encode_copies      the same for what moves elements: CPY, CONCAT, REPEAT, GET_ROWS and others
encode_matmul   the same for MUL_MAT and MUL_MAT_ID, and the rounding of activations
chains     sums and norms that one launch computes, with the rounding after them
split      the calls of a whole split, rounded activations shared among matmuls
steps      launches that become steps of one: which, and the table that describes them
step_sources   the source of a program that has many kernels as steps
binding    calls -> launches with kernels and buffers of the device
launches   the calls of a split as the driver takes them, kept from token to token
families   which .cl files a program is made of, and the macros that name its types
programs   the programs of a device, kernels by name
buffer     device memory, and mapped files that a device reads where they lie
pinned     host memory that the driver has pinned
row_buffer   split memory: matrices whose rows are on several devices
row_plan   what each device does for the products of a split in such memory
row_split  the same, bound to queues and computed
scratch    memory of a stream for rounded activations
backend    OpenClBackend: one in-order queue
events     commands as events, times on the host's clock
clock      the device's clock mapped to the host's
warmup     one sample of every kernel, of which a run compiles those it needs
errors     the driver's refusals as DeviceError
kernels/   one .cl file a family
"""
