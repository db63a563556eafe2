"""A model: from a GGUF header to graphs, plans and runs.

manifest       the models Splitscope knows where to fetch
fetch          one of them, fetched once and checked
pip_download   a package's wheel through pip, with progress
arch_keys      the keys of an architecture, read and checked
hparams        the numbers of a model, from its metadata
hparams_parts  the types they are told in
hparams_rope   rotations by four positions a token
rope_keys      rotations by one
hparams_moe    experts
hparams_latent  keys and values in short rows
hparams_recurrent  states
hparams_encoder  encoders
device_choice  which devices a model uses, and why the others are left out
split_memory   where rows of matrices are divided among devices
placement      devices, layers and buffer types: where weights and caches go
meta_device    the facts of several devices joined into one
shards         which part of each weight and cache its members hold
probe          whether a device can use a weight where it would lie
weights        the weights of an architecture as tensors with a home
kv_cache       keys and values of earlier tokens
recurrent_state  states that recurrent layers carry from token to token
blocks         parts that graphs share: norms, attention, feed-forward, experts
arch           one file an architecture: its numbers, its weights and its graph
generic        models of any other architecture: weights by layer, caches as far as known
planned_model  a model on devices, before any graph
memory         the ledger: bytes by buffer type and kind
planning       PlanSet of a header, devices and options; pure
upload         weights on their way to a device, through pinned memory where it has some
loader         weights into real buffers
cells          which position is in which cell of the cache
batch_inputs   what the host writes before a batch
token_inputs   the same for one token, in less time
ready_graphs   graphs that are kept for when their shape comes again
context        a loaded model that computes batches
"""
