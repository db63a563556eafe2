"""The OpenCL backend: GPUs, and CPUs through software drivers such as PoCL.

reg        create(): the backend family with its devices, or the reason why there are none
platforms  what the installed drivers offer
discovery  which devices are used, which are hidden or left out, and why
selfcheck  a device has to compute something right before it is offered
trial      that check in a process of its own, since a driver may end it
device     OpenClDevice: facts of the moment, memory held
rules      which operations, types and layouts have a kernel
encode     tensor -> kernel call: name, arguments, number of items (no device needed)
split      the calls of a whole split, rounded activations shared among matmuls
programs   .cl families built for a device, kernels by name
buffer     device memory
scratch    memory of a stream for rounded activations
backend    OpenClBackend: one in-order queue
events     commands as events, times on the host's clock
clock      the device's clock mapped to the host's
warmup     one sample of every kernel, compiled before a run needs it
errors     the driver's refusals as DeviceError
kernels/   one .cl file a family
"""
