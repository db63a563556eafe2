"""A model: from a GGUF header to graphs, plans and runs.

manifest      the models Splitscope knows where to fetch
fetch         the demo model, fetched once and checked
pip_download  a package's wheel through pip, with progress
hparams       the numbers of a model, from its metadata
placement     devices, layers and buffer types: where weights and caches go
weights       the weights of an architecture as tensors with a home
kv_cache      keys and values of earlier tokens
blocks        parts that graphs share: norms, attention, feed-forward
arch          one file an architecture: its weights and its graph
memory        the ledger: bytes by buffer type and kind
planning      PlanSet of a header, devices and options; pure
loader        weights into real buffers
context       a loaded model that computes batches
"""
